"""Several taggers that vote."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from polyembed._checks import check_choice, check_ids, class_name, must, require
from polyembed._pretrained import repr_call
from polyembed.functional import voting
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.tagging._running import embedders_stack, obstacle, run_stacked
from polyembed.tagging._sharing import built_alike, share_frozen_parts
from polyembed.tagging.tagger import SequenceTagger
from polyembed.tagging.word_tagger import Inputs, Vocabulary, WordTagger
from polyembed.text.lexicon import Lexicon
from polyembed.text.pieces import Pieces


class VotingEnsemble(WordTagger):
    """Taggers of one tag set that vote (Winata 2021, HME-Ensemble): a tagger like each of them.

    - ``"hard"``: each word's tag is the one that most members decode; of equally many votes, that of the earliest
      member among them (`polyembed.functional.majority_vote`).
    - ``"soft"``: the tag of the highest mean probability, ``argmax_y 1/M sum_m p_m(y)``: a softmax's probabilities,
      or a CRF's marginals.
    - ``"entity"``: the entities that more than half of the members decode
      (`polyembed.functional.entity_vote`): always a valid BIO sequence, which the other two need not give.

    Calling the ensemble gives the mean of the members' losses: each member gets the gradient of its own, divided by
    their number.

    Members become parts of the ensemble, and what they hold in common becomes one object, in memory and in a saved
    folder: equal lexicons, sources of vectors and spellings, equal word embedders without anything to train, and
    other frozen parameters of equal content. Unfreeze before, or not at all.

    Members of one architecture can run stacked: their parameters side by side, in one pass (`torch.vmap`), with
    the same votes. Attention is then computed by products, not by a fused kernel, so its memory grows with the square
    of a sentence's length; members with an LSTM cannot. What ``torch.compile`` takes is members one by one.

    Args:
        members: Taggers.
        vote: How they vote.
        stacked: Whether the members run stacked; if None, on a GPU where they can, outside of compilation. False where
            parts of your own do things that `torch.vmap` does not take.

    Shape:
        ids ``(batch, word)``, tags and mask ``(batch, word)``; the loss is a scalar.

    Raises:
        ValueError: No member, members of different tag sets, `stacked` for members that cannot, or an entity vote over
            tags that are not BIO.
        TypeError: A member that is no `SequenceTagger`.

    Example:
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> members = [SequenceTagger(nn.Embedding(6, 8), ["X", "VERB"], lexicon=lexicon) for _ in range(3)]
        >>> ensemble = VotingEnsemble(members)
        >>> [len(tags) for tags in ensemble.predict([["that", "canción"], []])]
        [2, 0]
        >>> ensemble.vote_entropy(*lexicon.encode([["me", "gusta"], ["song"]])).shape
        torch.Size([2, 2])

    Deviations: the soft and the entity vote are this library's.
    """

    def __init__(
        self,
        members: Sequence[SequenceTagger],
        *,
        vote: Literal["hard", "soft", "entity"] = "hard",
        stacked: bool | None = None,
    ) -> None:
        check_choice("vote", vote, ("hard", "soft", "entity"))
        members = list(members)
        require(len(members) > 0, "members", "hold at least one tagger", "none")
        for i, member in enumerate(members):
            if not isinstance(member, SequenceTagger):
                raise TypeError(must(f"members[{i}]", "be a SequenceTagger", class_name(member)))
            first = list(members[0].tags)
            require(list(member.tags) == first, f"members[{i}]", f"have members[0]'s tags {first}", list(member.tags))
        if vote == "entity":
            _check_bio(members[0].tags)
        if not (stacked is None or isinstance(stacked, bool)):
            raise TypeError(must("stacked", "be True, False or None", repr(stacked)))
        reason = obstacle(members) if _would_read_alike(members) else "members that do not read alike"
        if stacked and reason is not None:
            raise ValueError(must("stacked", "be None or False for these members", f"True for {reason}"))
        super().__init__()
        share_frozen_parts(members)
        self.members = nn.ModuleList(members)
        self.tags = members[0].tags
        self.vote = vote
        self.stacked = stacked
        self._read_alike = _read_alike(members)
        self._obstacle = reason
        self._stack_embedders = embedders_stack(members)

    @property
    def device(self) -> torch.device:
        """Tell where inputs must be."""
        return self._members[0].device

    @property
    def lexicon(self) -> Lexicon | None:
        """The lexicon that all members share; None if they have several, or none."""
        return self._members[0].lexicon if self._read_alike else None

    @property
    def reads_alike(self) -> bool:
        """Whether all members take the same inputs: `encode` then gives one for all, else a list of each member's."""
        return self._read_alike

    def forward(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces | list[Tensor | Pieces],
        *,
        tags: Int[Tensor, "batch word"],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean of the members' losses.

        Args:
            inputs: What `encode` gives: a lexicon's ids, or `Pieces`; a list of each member's where they do not read
                alike.
            tags: Tag ids (`encode_tags`); anything where the mask is off.
            mask: True = a word; None = all are.

        Returns:
            The mean loss in nats.
        """
        check_ids("tags", tags)
        if self._runs_stacked:
            return self._run_stacked("loss", inputs, tags, mask).mean()
        losses = [member(x, tags=tags, mask=mask) for member, x in self._each(inputs)]
        return torch.stack(losses).mean()

    @torch.no_grad()
    def decode(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces | list[Tensor | Pieces],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Int[Tensor, "batch word"]:
        """Vote on the tags; an entity vote makes the host wait for a GPU.

        Args:
            inputs: As in `forward`.
            mask: True = a word; None = all are.

        Returns:
            Tag ids, -100 at masked positions.
        """
        if self.vote == "soft":
            tags = self.probabilities(inputs, mask).argmax(-1)
            return tags if mask is None else torch.where(mask, tags, IGNORE_INDEX)
        votes = self.votes(inputs, mask)
        return self._entity_vote(votes) if self.vote == "entity" else voting.majority_vote(votes)

    def probabilities(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces | list[Tensor | Pieces],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word tag"]:
        """Compute the members' mean probability of each tag at each word.

        Args:
            inputs: As in `forward`.
            mask: True = a word; None = all are.

        Returns:
            ``(batch, word, tag)``, in at least float32; zeros at masked positions.
        """
        if self._runs_stacked:
            return self._run_stacked("probabilities", inputs, mask).mean(0)
        return torch.stack([member.probabilities(x, mask) for member, x in self._each(inputs)]).mean(0)

    @torch.no_grad()
    def votes(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces | list[Tensor | Pieces],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Int[Tensor, "voter batch word"]:
        """Let each member decode on its own.

        Args:
            inputs: As in `forward`.
            mask: True = a word; None = all are.

        Returns:
            Tag ids, -100 at masked positions.
        """
        if self._runs_stacked:
            return self._run_stacked("decode", inputs, mask)
        return torch.stack([member.decode(x, mask) for member, x in self._each(inputs)])

    def agreement(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces | list[Tensor | Pieces],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "voter other_voter"]:
        """Compute the share of words that each two members tag alike.

        Args:
            inputs: As in `forward`.
            mask: True = a word; None = all are.

        Returns:
            A symmetric matrix; 0 without any word.
        """
        return voting.agreement(self.votes(inputs, mask))

    def vote_entropy(
        self,
        inputs: Int[Tensor, "batch word"] | Pieces | list[Tensor | Pieces],
        mask: Bool[Tensor, "batch word"] | None = None,
    ) -> Float[Tensor, "batch word"]:
        """Compute how split the members are over each word.

        Args:
            inputs: As in `forward`.
            mask: True = a word; None = all are.

        Returns:
            The entropy of their tags in nats; 0 where all agree, and at masked positions.
        """
        return voting.vote_entropy(self.votes(inputs, mask))

    def encode(self, sentences: Sequence[Sequence[str]]) -> tuple[Inputs, Tensor]:
        """Turn words into the members' inputs.

        Args:
            sentences: Lists of words.

        Returns:
            Ids or `Pieces`, a list of each member's where they do not read alike, and the mask ``(batch, word)``.
        """
        if self._read_alike:
            return self._members[0].encode(sentences)
        encoded = [member.encode(sentences) for member in self._members]
        return [inputs for inputs, _ in encoded], encoded[0][1]

    def encode_tags(self, sentences: Sequence[Sequence[str]]) -> Int[Tensor, "batch word"]:
        """Turn tag names into ids, padded with -100.

        Args:
            sentences: One list of tag names a sentence.

        Returns:
            ``(batch, word)`` int64.

        Raises:
            ValueError: A name outside the tag set, or a sequence that a member's constraints forbid.
        """
        encoded = [member.encode_tags(sentences) for member in self._members]
        return encoded[0]

    @property
    def _members(self) -> list[SequenceTagger]:
        return list(self.members)  # type: ignore[arg-type]

    @property
    def _runs_stacked(self) -> bool:
        if self.stacked is not None:
            return self.stacked
        return self._obstacle is None and self.device.type == "cuda" and not torch.compiler.is_compiling()

    def _run_stacked(
        self, method: Literal["loss", "decode", "probabilities"], inputs: Inputs, *arguments: Tensor | None
    ) -> Tensor:
        if isinstance(inputs, list):
            raise TypeError(must("inputs", "be what all members read", "a list"))
        return run_stacked(self._members, method, inputs, *arguments, stack_embedders=self._stack_embedders)

    def _each(self, inputs: Inputs) -> list[tuple[SequenceTagger, Any]]:
        """Pair the members with their inputs."""
        if not isinstance(inputs, list):
            require(self._read_alike, "inputs", "be a list of each member's", class_name(inputs))
            inputs = [inputs] * len(self.members)
        require(len(inputs) == len(self.members), "inputs", f"be those of {len(self.members)} members", len(inputs))
        return list(zip(self._members, inputs, strict=True))

    def _entity_vote(self, votes: Tensor) -> Tensor:
        """Vote on entities over each row's valid words."""
        names = [
            [[self.tags[tag] for tag in row if tag != IGNORE_INDEX] for row in member] for member in votes.tolist()
        ]
        ids = {tag: i for i, tag in enumerate(self.tags)}
        elected = [ids[name] for row in voting.entity_vote(names) for name in row]
        valid = votes[0].ne(IGNORE_INDEX)
        return votes[0].masked_scatter(valid, votes.new_tensor(elected))

    def _vocabularies(self) -> list[Vocabulary]:
        lexicons = {id(member.lexicon): member.lexicon for member in self._members if member.lexicon is not None}
        return [
            Vocabulary(lexicon, [member.embedder for member in self._members if member.lexicon is lexicon])
            for lexicon in lexicons.values()
        ]

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"members": self._members, "vote": self.vote, "stacked": self.stacked}

    def __repr__(self) -> str:
        return repr_call(self, **self.get_config())


def _read_alike(members: Sequence[SequenceTagger]) -> bool:
    """Tell whether the members take the same inputs: ids of one lexicon, or one word encoder's pieces."""
    lexicon, embedder = members[0].lexicon, members[0].embedder
    if lexicon is not None:
        return all(member.lexicon is lexicon for member in members)
    return all(member.lexicon is None and built_alike(member.embedder, embedder) for member in members)


def _would_read_alike(members: Sequence[SequenceTagger]) -> bool:
    """Tell whether the members will take the same inputs once they share what they have in common."""
    first = members[0]
    if first.lexicon is not None:
        return all(built_alike(member.lexicon, first.lexicon) for member in members)
    return _read_alike(members)


def _check_bio(tags: Sequence[str]) -> None:
    """Require tags that can name whatever an entity vote gives."""
    try:
        needed = {"O", *(voting.entity_vote([[[tag]]])[0][0] for tag in tags)}
    except ValueError as error:
        raise ValueError(must("tags", "be BIO for an entity vote", list(tags))) from error
    missing = sorted(needed - set(tags))
    require(not missing, "tags", f"hold {', '.join(missing)} for an entity vote", list(tags))
