#!/usr/bin/env bash
# Fetches the scripts that the dashboard's pages run, at the versions below, and writes what is held
# against them: agentspec/dashboard/static/vendor/vendor.lock.json. For developers; needs npm. What
# it writes is committed, so that neither installing nor serving needs node or a network.
set -euo pipefail
cd "$(dirname "$0")/.."

into=agentspec/dashboard/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$into"
rm -f "$into"/*

# package, version, file in it, its name here
while read -r package version file name; do
  folder="$work/$name"
  mkdir "$folder"
  npm pack --silent --json --pack-destination "$folder" "$package@$version" >"$folder/pack.json"
  tar -xzf "$folder"/*.tgz -C "$folder"
  cp "$folder/package/$file" "$into/$name.min.js"
  cp "$folder/package/LICENSE" "$into/$name.LICENSE"
done <<'SCRIPTS'
htmx.org 2.0.11 dist/htmx.min.js htmx
idiomorph 0.7.4 dist/idiomorph-ext.min.js idiomorph-ext
vega 6.4.0 build/vega.min.js vega
vega-lite 6.4.3 build/vega-lite.min.js vega-lite
vega-embed 7.3.0 build/vega-embed.min.js vega-embed
SCRIPTS

"${PYTHON:-python3}" - "$work" "$into" <<'LOCK'
import base64, hashlib, json, pathlib, sys

work, into = map(pathlib.Path, sys.argv[1:])
files = {}
for folder in sorted(path for path in work.iterdir() if path.is_dir()):
    packed = json.loads((folder / "pack.json").read_text())[0]
    about = json.loads((folder / "package" / "package.json").read_text())
    name = f"{folder.name}.min.js"
    digest = hashlib.sha384((into / name).read_bytes()).digest()
    files[name] = {
        "package": about["name"],
        "version": about["version"],
        "licence": about["license"],
        "package_integrity": packed["integrity"],
        "integrity": "sha384-" + base64.b64encode(digest).decode(),
    }
(into / "vendor.lock.json").write_text(json.dumps({"files": files}, indent=2) + "\n")
print(f"{into}: {len(files)} scripts")
LOCK
