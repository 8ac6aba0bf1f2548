"""Formats of quantized pages, with the instructions that their kernels take by the stored measurement."""

from typing import Any

from kvedu.book.rows import load_row
from kvedu.viz import coded


def run() -> dict[str, Any]:
    """The figure's data; the question is asked of int8 on an H200."""
    row = load_row("instructions")
    made = coded.data([one for one in row["rows"] if one["format"] == "16 bits" or one["format"] in coded.FORMATS])
    own = made["chips"][-1]
    plain, eight = own["per_element"]["16 bits"], own["per_element"]["int8"]
    bits = coded.FORMATS["int8"][0].sized.bits_per_element
    before = max(2 / own["bandwidth"], plain / own["issue"])
    apart = next(one["per_element"] for one in row["rows"] if one["format"] == "int8, code by code" and one["capability"] == coded.CHIPS[own["name"]])
    after, slow = (max(bits / 8 / own["bandwidth"], each / own["issue"]) for each in (eight, apart))
    made["predict"] = {
        "question": f"int8 with a scale and a zero point for each token takes {bits / 8:.2f} bytes a number instead of 2. How much faster can the library's kernel read the cache on an H200?",
        "choices": [f"{16 / bits:.2f} times, as bytes say", f"at most {before / slow:.2f} times", "not at all"],
        "answer": 0 if after == bits / 8 / own["bandwidth"] else 1,
        "because": f"Its loop takes {eight:.1f} instructions for each number, and an H200 issues {own['issue'] / own['bandwidth']:.1f} in the time of a byte. A loop that takes the codes out one by one needs {apart:.1f}, and could be {before / slow:.2f} times as fast at most.",
    }
    made["source"] = f"instructions from {row.cite().replace(row.command, f'`{row.command}`')}; chips by their datasheets"
    return made
