"""The ids of sub-word pieces, as the released LASER encoders count them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

from polyembed._checks import class_name, is_count, must, require
from polyembed._pretrained import Configurable

SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
FILE_NAME = "pieces-{}.json"


class PieceDictionary(Configurable):
    """Pieces and their ids: those of fairseq, where ``<s>``, ``<pad>``, ``</s>`` and ``<unk>`` are 0, 1, 2 and 3.

    Args:
        pieces: All pieces in the order of their ids, the four special ones among them, wherever they stand.

    Attributes:
        padding_id: The id of ``<pad>``.
        end_id: The id of ``</s>``, which ends every sentence.
        unknown_id: The id of ``<unk>``, which stands for every piece that is none of these.

    Raises:
        ValueError: A special piece is missing, or a piece stands twice; ids that leave a gap.
        TypeError: A piece that is no string, an id that is no integer.

    Example:
        >>> dictionary = PieceDictionary.from_pieces(["can@@", "ción"])
        >>> len(dictionary), dictionary.ids(["can@@", "ción", "song"])
        (6, [4, 5, 3])

    Deviations: none.
    """

    file_arguments: ClassVar[frozenset[str]] = frozenset({"pieces"})

    def __init__(self, pieces: Iterable[str]) -> None:
        self._pieces = check_pieces(pieces)
        self._ids = {piece: i for i, piece in enumerate(self._pieces)}
        require(len(self._ids) == len(self._pieces), "pieces", "stand once each", self._first_repeated())
        missing = [piece for piece in SPECIAL if piece not in self._ids]
        require(not missing, "pieces", f"hold {', '.join(SPECIAL)}", f"none of {', '.join(missing)}")
        self.padding_id, self.end_id, self.unknown_id = (self._ids[piece] for piece in SPECIAL[1:])

    @classmethod
    def from_pieces(cls, pieces: Iterable[str]) -> Self:
        """Put the special pieces before others, as fairseq does with a file of pieces.

        Args:
            pieces: Pieces in the order of their ids; special ones among them count once.

        Returns:
            The dictionary.

        Raises:
            TypeError: A string in the place of several, or a piece that is none.
        """
        return cls(dict.fromkeys([*SPECIAL, *check_pieces(pieces)]))

    @classmethod
    def from_ids(cls, ids: Mapping[str, int]) -> Self:
        """Turn a table of ids, as a checkpoint holds it, into a dictionary.

        Args:
            ids: Piece -> id; special pieces that it lacks get fairseq's ids, if these are free.

        Returns:
            The dictionary.

        Raises:
            ValueError: Ids that are not ``0 .. n-1``, each once.
            TypeError: Not a table from strings to integers.
        """
        if not isinstance(ids, Mapping):
            raise TypeError(must("dictionary", "be a table from pieces to ids", class_name(ids)))
        taken = set(ids.values()) if all(map(is_count, ids.values())) else set()
        wrong = next((value for value in ids.values() if not is_count(value)), None)
        if wrong is not None:
            raise TypeError(must("dictionary", "hold integer ids", repr(wrong)))
        found = dict(ids) | {piece: i for i, piece in enumerate(SPECIAL) if piece not in ids and i not in taken}
        order = sorted(found, key=found.__getitem__)
        gaps = [i for i, piece in enumerate(order) if found[piece] != i]
        got = f"{found[order[gaps[0]]]} for {order[gaps[0]]!r} where {gaps[0]} is due" if gaps else ""
        require(not gaps, "dictionary", "number its pieces 0, 1, 2, ..., each once", got)
        return cls(order)

    def __len__(self) -> int:
        """Count the ids, the special ones included."""
        return len(self._pieces)

    def __contains__(self, piece: str) -> bool:
        """Tell whether a piece has an id of its own."""
        return piece in self._ids

    def ids(self, pieces: Sequence[str]) -> list[int]:
        """Look pieces up.

        Args:
            pieces: Any strings.

        Returns:
            An id each, `unknown_id` for what is no piece.
        """
        return [self._ids.get(piece, self.unknown_id) for piece in pieces]

    def pieces(self) -> list[str]:
        """List all pieces.

        Returns:
            Them in the order of their ids.
        """
        return list(self._pieces)

    def write_files(self, folder: Path) -> dict[str, str]:
        """Write the pieces."""
        name = FILE_NAME.format(sum(1 for _ in folder.glob(FILE_NAME.format("*"))))
        (folder / name).write_text(json.dumps(self._pieces, ensure_ascii=False), "utf-8", "surrogatepass")
        return {"pieces": name}

    def get_config(self) -> dict[str, Any]:
        """Return nothing: the pieces stand in a file."""
        return {}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        """Build the dictionary from its file."""
        return cls(read_json(config["pieces"]))

    def __repr__(self) -> str:
        return f"{class_name(self)}({len(self)} pieces)"

    def _first_repeated(self) -> str:
        counts = Counter(self._pieces)
        return next((f"{piece!r} twice" for piece in self._pieces if counts[piece] > 1), "")


def check_pieces(pieces: Iterable[str], *, name: str = "pieces") -> list[str]:
    """Require strings, and give them: the caller goes on with these, since some can be read only once."""
    if isinstance(pieces, str):
        raise TypeError(must(name, "be a sequence of pieces", f"the string {pieces!r}"))
    pieces = list(pieces)
    for place, piece in enumerate(pieces):
        if not isinstance(piece, str):
            raise TypeError(must(f"{name}[{place}]", "be a string", class_name(piece)))
    return pieces


def read_json(path: Path) -> list[Any]:
    """Read a list that a saved folder holds in a file of its own."""
    try:
        data = json.loads(path.read_text("utf-8", "surrogatepass"))
    except ValueError as error:
        raise ValueError(must(str(path), "hold a list in JSON", error)) from error
    require(isinstance(data, list), str(path), "hold a list in JSON", class_name(data))
    return list(data)
