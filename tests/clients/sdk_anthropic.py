"""The same over Anthropic's SDK: ``python sdk_anthropic.py MODEL TASK``."""

import sys

import anthropic
from sdk_openai import TOOLS, schema


def main(model: str, task: str) -> None:
    client, messages = anthropic.Anthropic(), [{"role": "user", "content": task}]
    tools = [{"name": name, "input_schema": schema(names)} for name, (_, names) in TOOLS.items()]
    for _ in range(10):
        given = {"model": model, "max_tokens": 500, "messages": messages, "tools": tools}
        with client.messages.stream(**given) as events:
            message = events.get_final_message()
        calls = [block for block in message.content if block.type == "tool_use"]
        if not calls:
            sys.stdout.write("".join(b.text for b in message.content if b.type == "text") + "\n")
            return
        content = [block.model_dump(exclude_none=True) for block in message.content]
        for block in content:
            for extra in set(block) - {"type", "text", "id", "name", "input"}:
                block.pop(extra)
        messages.append({"role": "assistant", "content": content})
        results = [
            {
                "type": "tool_result",
                "tool_use_id": call.id,
                "content": TOOLS[call.name][0](**call.input),
            }
            for call in calls
        ]
        messages.append({"role": "user", "content": results})


if __name__ == "__main__":
    main(*sys.argv[1:])
