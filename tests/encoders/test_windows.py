"""Windows over long rows, row by row: framed as sentences, with context around every piece."""

import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from polyembed.encoders.pretrained import plan_windows

OPEN, CLOSE, NONE = 1000, 2000, -9


def rows_of(lengths: list[int], before: int, after: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows in which the id of a piece is its number, between special pieces."""
    width = max(lengths) + before + after
    ids = torch.full((len(lengths), width), NONE)
    for row, length in enumerate(lengths):
        pieces = [*range(OPEN, OPEN + before), *range(length), *range(CLOSE, CLOSE + after)]
        ids[row, : len(pieces)] = torch.tensor(pieces, dtype=torch.int64)
    return ids, ids != NONE


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 40), min_size=1, max_size=4),
    st.integers(3, 11),
    st.integers(0, 2),
    st.integers(0, 1),
)
def test_windows_hold_everything(lengths: list[int], room: int, before: int, after: int):
    assume(min(lengths) + before + after > 0)
    ids, mask = rows_of(lengths, before, after)
    take, real, give = plan_windows(mask, room + before + after, before, after)
    windows = torch.where(real, ids.flatten()[take], NONE)
    assert torch.equal(windows.flatten()[give][mask], ids[mask])
    rows = (take[:, 0] // mask.shape[1]).tolist()
    for row, window in zip(rows, windows.tolist(), strict=True):
        pieces = [piece for piece in window if piece != NONE]
        assert pieces[:before] == list(range(OPEN, OPEN + before))
        assert pieces[len(pieces) - after :] == list(range(CLOSE, CLOSE + after))
        inner = pieces[before : len(pieces) - after]
        assert inner == (list(range(inner[0], inner[0] + len(inner))) if inner else [])
        assert len(inner) == min(lengths[row], room)
    assert all((rows.count(row) == 1) == (length <= room) for row, length in enumerate(lengths))


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 90), st.integers(8, 20))
def test_a_piece_is_far_from_the_edges_of_its_window(length: int, room: int):
    ids, mask = rows_of([length], 1, 1)
    take, real, give = plan_windows(mask, room + 2, 1, 1)
    windows = ids.flatten()[take]
    for piece in range(length):
        window, place = divmod(int(give[0, piece + 1]), room + 2)
        held = [int(x) for x in windows[window][real[window]] if x < OPEN]
        assert held[place - 1] == piece
        assert held[0] == 0 or piece - held[0] >= room // 4 - 1
        assert held[-1] == length - 1 or held[-1] - piece >= room // 4 - 1
