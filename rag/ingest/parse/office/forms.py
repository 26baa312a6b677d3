"""What a person sees in the forms of office documents: which boxes are ticked, what is chosen from a list."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rag.ingest.parse.zipped import child, is_on, value

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

TICKED, UNTICKED = "[x]", "[ ]"  # as in Markdown, which models and people read alike

_WINGDINGS = {
    **dict.fromkeys((0x52, 0x53, 0xFD, 0xFE), TICKED),
    **dict.fromkeys((0x6F, 0x70, 0x71, 0x72, 0xA8), UNTICKED),
    0xFB: "✗",
    0xFC: "✓",
    **dict.fromkeys((0xE0, 0xE8), "→"),
}
_BOXES = {"☒": TICKED, "☑": TICKED, "☐": UNTICKED}
_PRIVATE = 0xF000  # where fonts of symbols have their characters


def field_value(field: Element) -> str | None:
    """What a box or a list among the fields of a form shows, None for other fields.

    `field` begins it and may hold the data of a form; the text of a text field follows it in the document.
    """
    if (box := child(field, "ffData", "checkBox")) is not None:
        return ticked(is_on(box, "checked" if child(box, "checked") is not None else "default"))
    if (choices := child(field, "ffData", "ddList")) is not None:
        entries = [choice.get("val", "") for choice in choices if choice.tag == "listEntry"]
        chosen = value(choices, "result") or value(choices, "default") or "0"
        at = int(chosen) if chosen.isdecimal() and len(chosen) < 4 else 0  # noqa: PLR2004 digits
        return entries[at] if at < len(entries) else ""
    return None


def ticked(is_ticked: bool) -> str:  # noqa: FBT001 its only argument
    """How a box is written: [x] or [ ]."""
    return TICKED if is_ticked else UNTICKED


def symbol(mark: Element) -> str:
    """A character of a symbol font, as far as it is a box, a tick or an arrow."""
    try:
        code = int(mark.get("char", ""), 16)
    except ValueError:
        return ""
    if code >= _PRIVATE:
        return _WINGDINGS.get(code - _PRIVATE, "") if mark.get("font") == "Wingdings" else ""
    character = chr(code) if code >= ord(" ") and not 0xD800 <= code < 0xE000 else ""  # noqa: PLR2004 surrogates
    return _BOXES.get(character, character)


def fill_controls(root: Element) -> None:
    """Write into the content of each content control what it shows: a box, or the choice from a list.

    The characters of a box can be anything that its author chose, so its state counts.
    """
    for control in root.iter("sdt"):
        about, content = child(control, "sdtPr"), child(control, "sdtContent")
        if content is None:
            continue
        if (box := child(about, "checkbox")) is not None:
            _show(content, ticked(is_on(box, "checked")))
        elif not any((text.text or "").strip() for text in content.iter("t")):
            _show(content, _choice(about))


def open_controls(body: Element) -> dict[str, str]:
    """What the controls of an OpenDocument file show, by their ids, which the text refers to."""
    controls = (control for forms in body.iter("forms") for control in forms.iter())
    return {
        id_: text
        for control in controls
        if (id_ := control.get("id", "")) and (text := _open_control(control))
    }


def _open_control(control: Element) -> str:
    label = control.get("label", "")
    match control.tag:
        case "checkbox":
            state = control.get("current-state", control.get("state", ""))
            return f"{ticked(state == 'checked')} {label}".strip()
        case "radio":
            state = control.get("current-selected", control.get("selected", ""))
            return f"{ticked(state == 'true')} {label}".strip()
        case "listbox":
            options = control.iter("option")
            chosen = (
                option
                for option in options
                if option.get("current-selected", option.get("selected")) == "true"
            )
            return ", ".join(option.get("label", "") for option in chosen)
        case "fixed-text":
            return label
        case "combobox" | "text" | "textarea" | "formatted-text" | "number" | "date" | "time":
            return control.get("current-value", control.get("value", ""))
        case _:
            return ""


def _choice(about: Element | None) -> str:
    """What a list or a date of a content control says although its content is empty."""
    for kind in ("dropDownList", "comboBox"):
        last = choices.get("lastValue", "") if (choices := child(about, kind)) is not None else ""
        if choices is not None and last:
            named = (item.get("displayText") for item in choices if item.get("value") == last)
            return next(filter(None, named), last)
    moment = child(about, "date")
    return moment.get("fullDate", "")[:10] if moment is not None else ""


def _show(content: Element, text: str) -> None:
    """Replace the texts of a control by this one."""
    if not text:
        return
    runs = [run for run in content.iter("r") if child(run, "instrText") is None]
    for run in runs:
        for part in [part for part in run if part.tag in {"t", "sym"}]:
            run.remove(part)
    if not runs:
        holder = next(content.iter("p"), content)
        runs = [holder.makeelement("r", {})]
        holder.append(runs[0])
    shown = content.makeelement("t", {})
    shown.text = text
    runs[0].append(shown)
