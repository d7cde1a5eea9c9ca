"""A recognisable password, and whether any form of it is in a text."""

from __future__ import annotations

import base64
import re
from urllib.parse import quote, quote_plus

# Each part between characters that a parser may stop at is a word of its own: a text that shows only a part shows it too.
WORDS = ("Kolibri", "Marabu", "Pelikan", "Tukan", "Emu7Emu", "Flamingo", "Reiher")
ODD = "Kolibri@Marabu/Pelikan%41Tukan:Emu7Emu#Flamingo? &='\"\\Reiher"
PLAIN = "KolibriMarabu"


def _base64_cores(word: str) -> set[str]:
    """What base64 of anything that holds `word` shows of it, at each of the three places it can start at."""
    found = set()
    for before in range(3):
        encoded = base64.b64encode(b"\0" * before + word.encode()).decode().rstrip("=")
        first = (before * 8 + 5) // 6  # digits that the bytes before share
        found.add(encoded[first : len(encoded) - 1])
    return found


FORMS = tuple(
    {form.lower() for word in (*WORDS, ODD) for form in (word, quote(word, safe=""), quote_plus(word), word[::-1])}
    | {word.encode().hex() for word in WORDS}
)
CORES = tuple({core for word in WORDS for core in _base64_cores(word)})


def leaks(text: str) -> list[str]:
    """Places in `text` that show a form of the password, each with what is around it."""
    lowered = text.lower()
    places = [m.start() for form in FORMS for m in re.finditer(re.escape(form), lowered)]
    places += [m.start() for core in CORES for m in re.finditer(re.escape(core), text)]
    return sorted({text[max(0, at - 60) : at + 60] for at in places})
