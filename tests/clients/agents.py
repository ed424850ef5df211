"""The agents as they are run without a terminal: what to add to the command that connect shows."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

COMMANDS = Path(__file__).parents[2] / ".clients" / "bin"
FUNCTIONS = Path(__file__).with_name("llm_functions.py")
QUIET = {"DO_NOT_TRACK": "1", "NO_UPDATE_NOTIFIER": "1", "CI": "1", "NO_COLOR": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """headless: the shell text that runs a task, out of (command shown by connect, task).

    text_edits: it sends no tools and takes its edit as text. real: it runs on the real engine
    too. version: the words after the command that make it print its version.
    """

    name: str
    binary: str
    headless: Callable[[str, str], str]
    env: Mapping[str, str] = field(default_factory=dict)
    text_edits: bool = False
    real: bool = False
    version: str = "--version"

    @property
    def installed(self) -> bool:
        return (COMMANDS / self.binary).exists()  # an absolute path stands for itself


def _behind(words: str) -> Callable[[str, str], str]:
    """The command, ``words``, the task."""
    return lambda command, task: f"{command} {words} {shlex.quote(task)}"


def _verb(binary: str, verb: str, words: str = "") -> Callable[[str, str], str]:
    """A subcommand right behind the binary's name."""
    return lambda command, task: (
        f"{command.replace(binary, f'{binary} {verb}', 1)} {words} {shlex.quote(task)}"
    )


def _aider(command: str, task: str) -> str:
    words = "--no-git --yes-always --no-check-update --analytics-disable --no-show-model-warnings"
    test = "--auto-test --test-cmd 'sh check.sh'"
    return f"{command} {words} {test} --message {shlex.quote(task)} calc.py"


def _mini(command: str, task: str) -> str:
    return f"{command} -y --exit-immediately -c agent.step_limit=6 -t {shlex.quote(task)}"


def _sdk(program: str) -> Callable[[str, str], str]:
    """The environment as connect wrote it, then a small agent over the SDK."""
    file = Path(__file__).with_name(program)
    return lambda command, task: (
        f"{command.partition('&&')[0]} && {sys.executable} {file} scripted {shlex.quote(task)}"
    )


_OPENCODE = {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"}
_KILO = {"KILO_DISABLE_AUTOUPDATE": "1", "KILO_DISABLE_MODELS_FETCH": "1"}
AGENTS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(
            name="codex",
            binary="codex",
            headless=_behind(
                "exec --skip-git-repo-check --dangerously-bypass-approvals-and-sandbox --"
            ),
        ),
        Agent(
            name="claude-code",
            binary="claude",
            headless=_behind("-p --allowedTools 'Bash Read Edit' --"),
            env={"IS_SANDBOX": "1", "DISABLE_AUTOUPDATER": "1"},
        ),
        Agent(name="opencode", binary="opencode", headless=_verb("opencode", "run"), env=_OPENCODE),
        Agent(name="qwen-code", binary="qwen", headless=_behind("--yolo -p")),
        Agent(
            name="cline",
            binary="cline",
            headless=_behind("--json --timeout 120"),
            env={"CLINE_TELEMETRY_DISABLED": "1"},
            real=True,
        ),
        Agent(name="aider", binary="aider", headless=_aider, text_edits=True, real=True),
        Agent(
            name="continue",
            binary="cn",
            headless=_behind("-p --auto"),
            env={"CONTINUE_TELEMETRY_ENABLED": "0"},
        ),
        Agent(
            name="kilocode",
            binary="kilo",
            headless=_verb("kilo", "run --auto"),
            env=_KILO | {"KILO_TELEMETRY_LEVEL": "off"},
        ),
        Agent(name="pi", binary="pi", headless=_behind("-p"), env={"PI_OFFLINE": "1"}),
        Agent(
            name="mini-swe-agent",
            binary="mini",
            headless=_mini,
            env={"MSWEA_CONFIGURED": "true", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
            real=True,
            version="--help",
        ),
        Agent(
            name="llm",
            binary="llm",
            headless=_behind(f"--functions {shlex.quote(str(FUNCTIONS))} --no-log"),
        ),
    )
}
SDKS: dict[str, Agent] = {
    agent.name: agent
    for agent in (
        Agent(name="openai-sdk", binary=sys.executable, headless=_sdk("sdk_openai.py")),
        Agent(name="anthropic-sdk", binary=sys.executable, headless=_sdk("sdk_anthropic.py")),
    )
}
