"""Content of Responses' messages and results as parts of a chat message."""

from __future__ import annotations

from .canonical import image_part, text_part
from .chat import ContentPart
from .errors import InvalidRequest
from .fields import missing
from .responses import Part


def parts_of(parts: list[Part], where: str) -> list[ContentPart]:
    """The parts of a message's content. where: its field. Raises ``InvalidRequest``."""
    made: list[ContentPart] = []
    for index, part in enumerate(parts):
        if part.type == "input_image":
            made.append(image_part(_image_url(part, f"{where}[{index}]"), part.detail))
        elif part.text is not None or part.refusal is not None:
            made.append(text_part(part.text if part.text is not None else part.refusal or ""))
        else:
            raise InvalidRequest(
                f"Invalid value for '{where}[{index}]': '{part.type[:64]}' is not supported here.",
                param=f"{where}[{index}]",
                code="unsupported_content",
            )
    return made


def _image_url(part: Part, where: str) -> str:
    url = part.image_url
    url = url.get("url") if isinstance(url, dict) else url
    if isinstance(url, str) and url:
        return url
    if part.file_id is not None:
        raise InvalidRequest(
            f"Invalid value for '{where}.file_id': uploaded files are not supported here. Send the "
            "picture in 'image_url'.",
            param=f"{where}.file_id",
            code="unsupported_content",
        )
    raise missing(f"{where}.image_url")


def split_output(output: str | list[Part], where: str) -> tuple[list[str], list[ContentPart]]:
    """(texts, pictures) of a tool's result. Raises as ``parts_of``."""
    if isinstance(output, str):
        return [output], []
    made = parts_of(output, where)
    texts = [part.text or "" for part in made if part.type == "text"]
    return texts, [part for part in made if part.type != "text"]
