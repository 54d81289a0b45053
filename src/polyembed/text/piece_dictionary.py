"""The ids of sub-word pieces, as the released LASER encoders count them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from polyembed._checks import class_name, is_count, must, require
from polyembed.saving import Configurable

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
FILE_NAME = "pieces-{}.json"


class PieceDictionary(Configurable):
    """Pieces and their ids, with fairseq's special pieces ``<s>``, ``<pad>``, ``</s>`` and
    ``<unk>`` among them.

    Args:
        pieces: All pieces in the order of their ids, the four special ones included, at any place.

    Attributes:
        padding_id: The id of ``<pad>``.
        end_id: The id of ``</s>``, which ends every sentence.
        unknown_id: The id of ``<unk>``, for all other pieces.

    Raises:
        ValueError: A special piece is missing, a piece occurs twice, or ids leave a gap.
        TypeError: A piece that is not a string, an id that is not an integer.

    Example:
        >>> dictionary = PieceDictionary.from_pieces(["can@@", "ción"])
        >>> len(dictionary), dictionary.ids(["can@@", "ción", "song"])
        (6, [4, 5, 3])
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"pieces"})

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = check_pieces(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        require(len(self._ids) == len(self._pieces), "pieces", "occur once each", self._repeated())
        missing = [piece for piece in SPECIAL if piece not in self._ids]
        require(
            not missing, "pieces", f"hold {', '.join(SPECIAL)}", f"none of {', '.join(missing)}"
        )
        self.padding_id, self.end_id, self.unknown_id = (self._ids[piece] for piece in SPECIAL[1:])

    @classmethod
    def from_pieces(cls, pieces: Iterable[str]) -> Self:
        """Build a dictionary with the special pieces first, ids 0 to 3, as fairseq reads a file of pieces."""
        return cls(dict.fromkeys([*SPECIAL, *check_pieces(pieces)]))

    @classmethod
    def from_ids(cls, ids: Mapping[str, int]) -> Self:
        """Build a dictionary from a checkpoint's table, piece -> id.

        Args:
            ids: The ids 0 to n - 1, each once; missing special pieces get fairseq's ids, if these
                are free.

        Returns:
            The dictionary.

        Raises:
            ValueError: Ids that are not ``0 .. n-1``, each once.
            TypeError: Not a table from strings to integers.
        """
        if not isinstance(ids, Mapping):
            raise TypeError(must("dictionary", "be a table from pieces to ids", class_name(ids)))
        wrong = [value for value in ids.values() if not is_count(value)]
        if wrong:
            raise TypeError(must("dictionary", "hold integer ids", repr(wrong[0])))
        taken = set(ids.values())
        found = dict(ids) | {
            piece: i for i, piece in enumerate(SPECIAL) if piece not in ids and i not in taken
        }
        order = sorted(found, key=found.__getitem__)
        gaps = [i for i, piece in enumerate(order) if found[piece] != i]
        got = (
            f"{found[order[gaps[0]]]} for {order[gaps[0]]!r} where {gaps[0]} is due" if gaps else ""
        )
        require(not gaps, "dictionary", "number its pieces 0, 1, 2, ..., each once", got)
        return cls(order)

    def __len__(self) -> int:
        """Return the number of ids, special ones included."""
        return len(self._pieces)

    def __contains__(self, piece: str) -> bool:
        """Return whether a piece has its own id."""
        return piece in self._ids

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """Return the id of each piece, `unknown_id` for strings outside the dictionary."""
        return [self._ids.get(piece, self.unknown_id) for piece in pieces]

    def pieces(self) -> list[str]:
        """Return all pieces in the order of their ids."""
        return list(self._pieces)

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the pieces."""
        return {"pieces": write_json(folder, FILE_NAME, self._pieces)}

    def get_config(self) -> dict[str, Any]:
        """Return an empty configuration: the pieces are in a file."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the dictionary from its file."""
        return cls(read_json(config["pieces"]))

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self)} pieces)"

    def _repeated(self) -> str:
        return ", ".join(
            f"{piece!r} twice" for piece, count in Counter(self._pieces).items() if count > 1
        )


def check_pieces(pieces: Iterable[str], *, name: str = "pieces") -> list[str]:
    """Require strings, and return them as a list, since an iterator can be read only once."""
    if isinstance(pieces, str):
        raise TypeError(must(name, "be a sequence of pieces", f"the string {pieces!r}"))
    pieces = list(pieces)
    for place, piece in enumerate(pieces):
        if not isinstance(piece, str):
            raise TypeError(must(f"{name}[{place}]", "be a string", class_name(piece)))
    return pieces


def free_name(folder: Path, pattern: str) -> str:
    """Return the pattern's first file name that the folder does not have yet."""
    return pattern.format(sum(1 for _ in folder.glob(pattern.format("*"))))


def write_json(folder: Path, pattern: str, items: list[Any]) -> str:
    """Write a list into a file of a saved folder, and return the file's name."""
    name = free_name(folder, pattern)
    (folder / name).write_text(json.dumps(items, ensure_ascii=False), "utf-8", "surrogatepass")
    return name


def read_json(path: Path) -> list[Any]:
    """Read a list from a JSON file of a saved folder."""
    try:
        data = json.loads(path.read_text("utf-8", "surrogatepass"))
    except ValueError as error:
        raise ValueError(must(str(path), "hold a list in JSON", error)) from error
    require(isinstance(data, list), str(path), "hold a list in JSON", class_name(data))
    return list(data)
