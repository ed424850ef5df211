"""A coding agent of forty lines over OpenAI's SDK: ``python sdk_openai.py MODEL TASK``."""

import json
import sys

import openai
from llm_functions import bash, edit_file, read_file

TOOLS = {
    "read_file": (read_file, ["path"]),
    "edit_file": (edit_file, ["path", "old_text", "new_text"]),
    "bash": (bash, ["command"]),
}


def schema(names: list[str]) -> dict:
    properties = {name: {"type": "string"} for name in names}
    return {"type": "object", "properties": properties, "required": names}


def main(model: str, task: str) -> None:
    client, messages = openai.OpenAI(), [{"role": "user", "content": task}]
    tools = [
        {"type": "function", "function": {"name": name, "parameters": schema(names)}}
        for name, (_, names) in TOOLS.items()
    ]
    for _ in range(10):
        with client.chat.completions.stream(model=model, messages=messages, tools=tools) as events:
            for _event in events:
                pass
            message = events.get_final_completion().choices[0].message
        if not message.tool_calls:
            sys.stdout.write(f"{message.content}\n")
            return
        calls = [call.model_dump(include={"id", "type", "function"}) for call in message.tool_calls]
        for call in calls:
            call["function"].pop("parsed_arguments", None)
        messages.append({"role": "assistant", "content": message.content, "tool_calls": calls})
        for call in message.tool_calls:
            done = TOOLS[call.function.name][0](**json.loads(call.function.arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": done})


if __name__ == "__main__":
    main(*sys.argv[1:])
