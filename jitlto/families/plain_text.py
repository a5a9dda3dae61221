"""Sources without comments and blanks, which make no difference to a compiler."""

import hashlib
import re

# Comments and blanks of C++, except single spaces, which need no change. Literals come first, which may look like them.
_TOKEN = re.compile(
    r"""(?P<kept>
        R"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)" | "(?:\\.|[^"\\\n])*" |
        '(?:(?<=[0-9a-fA-F]')(?<!u8')(?=[0-9a-fA-F])|(?:\\.|[^'\\\n])*')  # the first separates the digits of a number
    )
    | (?: [ ](?=[\s/]) | [\t\n\v\f\r] | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )
      (?: \s | //(?:\\\r?\n|[^\n])* | /\*.*?\*/ )*""",
    re.S | re.X,
)


def digest(text: str) -> str:
    """Return the SHA-256 of a source without comments and blanks, equal for sources that differ in nothing else."""
    plain = _TOKEN.sub(lambda m: m[0] if m["kept"] is not None else "\n" if "\n" in m[0] else " ", text)
    return hashlib.sha256(plain.strip().encode()).hexdigest()
