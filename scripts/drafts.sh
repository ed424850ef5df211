#!/usr/bin/env bash
# Train the package's drafts: prompts, the target's answers, features, then one method after the
# other, all on the same samples with the same steps. Every stage goes on where it was stopped.
#   scripts/drafts.sh FOLDER TASKS [METHOD...]
# TASKS: function-calling tasks in BFCL's form. FOLDER takes 4 GB; it is not the package's.
set -euo pipefail
folder=$1 tasks=$2
shift 2
methods=("$@")
[ ${#methods[@]} -gt 0 ] || methods=(dspark dflash jetspec eagle3 mtp)
here=$(cd "$(dirname "$0")" && pwd)

mkdir -p "$folder"
cp "$here/drafts.toml" "$folder/draft.toml"
agentspec bench prompts --side training --to "$folder/training.jsonl" --tasks "$tasks" \
  --n 500,300,400,300 --runs "$folder/training.runs"
config=(--config "$folder/draft.toml")
agentspec draft regenerate "${config[@]}"
agentspec draft cache "${config[@]}"
for method in "${methods[@]}"; do
  agentspec draft train "${config[@]}" --method "$method"
  if [ "$method" = dspark ]; then
    agentspec draft calibrate "${config[@]}" --method "$method"
  fi
  agentspec draft eval "${config[@]}" --method "$method" | tee "$folder/run/$method/eval.json"
done
