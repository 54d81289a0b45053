"""Several taggers that vote."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

from polyembed._checks import check_choice, check_sentences, check_words, require, require_type
from polyembed._views import shallow_copy
from polyembed.functional import voting
from polyembed.functional.losses import IGNORE_INDEX
from polyembed.metrics import Scheme, scheme_of
from polyembed.tagging.decoders import Emissions, Mask, TagIds
from polyembed.tagging.tagger import SequenceTagger, Tagger
from polyembed.text.lexicon import Lexicon


class VotingEnsemble(Tagger):
    """Taggers of one tag set that vote (Winata 2021, HME-Ensemble): a tagger like each of them.

    - ``"hard"``: each word's tag is the one that most members decode. If tags have equally many
      votes, the tag of the earliest member wins (`polyembed.functional.majority_vote`).
    - ``"soft"``: the tag of the highest mean probability, ``argmax_y 1/M sum_m p_m(y)``, where
      ``p_m`` is a softmax's probability or a CRF's marginal.
    - ``"entity"``: the entities that more than half of the members decode
      (`polyembed.functional.entity_vote`). The result is always a valid sequence of the scheme,
      which the other two votes do not guarantee.

    Calling the ensemble gives the mean of the members' losses: each member gets its own gradient,
    divided by the number of members.

    Members that were built over one embedder share it in memory and in a saved folder.

    Args:
        members: The taggers.
        vote: The rule by which they vote.
        scheme: The scheme of the tags, for an entity vote: ``"bio"``, ``"bioes"`` or ``"bilou"``;
            if None, the one that the tags' letters show.

    Shape:
        ids ``(batch, word)``, tags and mask ``(batch, word)``; the loss is a scalar.

    Raises:
        ValueError: If `members` is empty; if tag sets differ; or if, for an entity vote, a tag does
            not fit the scheme or the tag set lacks a tag that the vote can return.
        TypeError: If a member is not a `SequenceTagger`.

    Example:
        >>> from polyembed import SourceEmbedding
        >>> lexicon = Lexicon(["me", "gusta", "that", "song"])
        >>> words = SourceEmbedding.from_embedding(nn.Embedding(6, 8), lexicon)
        >>> ensemble = VotingEnsemble([SequenceTagger(words, ["X", "VERB"]) for _ in range(3)])
        >>> [len(tags) for tags in ensemble.predict([["that", "canción"], []])]
        [2, 0]
        >>> ensemble.votes(*ensemble.encode([["me", "gusta"], ["song"]])).shape
        torch.Size([3, 2, 2])

    Deviations: the soft and the entity vote are this library's.
    """

    def __init__(
        self,
        members: Sequence[SequenceTagger],
        *,
        vote: Literal["hard", "soft", "entity"] = "hard",
        scheme: Scheme | None = None,
    ) -> None:
        check_choice("vote", vote, ("hard", "soft", "entity"))
        require(len(members) > 0, "members", "hold at least one tagger", "none")
        for i, member in enumerate(members):
            is_tagger = isinstance(member, SequenceTagger)
            require_type(is_tagger, f"members[{i}]", "be a SequenceTagger", member)
            tags = members[0].tags
            rule = f"have members[0]'s tags {', '.join(tags)}"
            require(member.tags == tags, f"members[{i}]", rule, member.tags)
        scheme = scheme or scheme_of(tags) or "bio"
        if vote == "entity":
            named = {"O", *(voting.entity_vote([[[tag]]], scheme=scheme)[0][0] for tag in tags)}
            rule = f"hold {', '.join(sorted(named - set(tags)))} for an entity vote"
            require(named <= set(tags), "tags", rule, list(tags))
        super().__init__()
        self.members = nn.ModuleList(members)
        self.tags = tags
        self.vote, self.scheme = vote, scheme

    @property
    def decoder(self) -> Any:
        """The first member's decoder, which names the tags."""
        return self._members[0].decoder

    @property
    def lexicon(self) -> Lexicon | None:
        """The lexicon of all members; None if theirs differ, or a member has none."""
        first = self._members[0].lexicon
        return first if all(member.lexicon == first for member in self._members) else None

    def forward(
        self,
        inputs: Any,
        *,
        tags: Shaped[Tensor, "batch word *tag"],
        mask: Mask = None,
    ) -> Float[Tensor, ""]:
        """Compute the mean of the members' losses.

        Args:
            inputs: The inputs, as `encode` makes them.
            tags: The ids of the tags (`encode_labels`); anything where the mask is off.
            mask: True = a word; None = all are.

        Returns:
            The mean loss in nats.
        """
        losses = [member(x, tags=tags, mask=mask) for member, x in self._each(inputs)]
        return torch.stack(losses).mean()

    @torch.no_grad()
    def decode(self, inputs: Any, mask: Mask = None) -> TagIds:
        """Return the ids of the elected tags; -100 where masked and where a member has no tag.

        An entity vote makes the host wait for a GPU.
        """
        if self.vote == "soft":
            mean = self.probabilities(inputs, mask)
            return torch.where(mean.sum(-1) > 0, mean.argmax(-1), IGNORE_INDEX)
        votes = self.votes(inputs, mask)
        votes = torch.where((votes == IGNORE_INDEX).any(0), IGNORE_INDEX, votes)
        return self._entity_vote(votes) if self.vote == "entity" else voting.majority_vote(votes)

    def probabilities(self, inputs: Any, mask: Mask = None) -> Emissions:
        """Compute the members' mean probability of each tag at each word; zeros where masked.

        A word for which a member has no probabilities, as over scores of NaN, has zeros too.
        """
        found = torch.stack([member.probabilities(x, mask) for member, x in self._each(inputs)])
        sound = (found.sum(-1, keepdim=True) > 0).all(0)
        return torch.where(sound, found.mean(0), 0.0)

    @torch.no_grad()
    def votes(self, inputs: Any, mask: Mask = None) -> Int[Tensor, "voter batch word"]:
        """Return the ids of the tags that each member decodes; -100 at masked positions."""
        return torch.stack([member.decode(x, mask) for member, x in self._each(inputs)])

    def encode(self, texts: Sequence[Sequence[str]]) -> tuple[Any, Bool[Tensor, "batch word"]]:
        """Turn words into the members' inputs.

        Args:
            texts: Lists of words.

        Returns:
            Ids where all members have one lexicon and equal `prepare`, else a tuple of each
            member's inputs; and the mask ``(batch, word)``.
        """
        if self._shares_inputs:
            return self._members[0].encode(texts)
        texts = check_sentences(texts, name="texts")
        encoded = [member.encode(texts) for member in self._members]
        return tuple(inputs for inputs, _ in encoded), encoded[0][1]

    def words_of(self, texts: Sequence[Sequence[str]], start: int = 0) -> set[str]:
        """Return the words that any member looks up; errors count texts from `start`."""
        readers = self._members[:1] if self._shares_inputs else self._members
        return set().union(*(member.words_of(texts, start) for member in readers))

    def with_words(self, words: Iterable[str]) -> Self:
        """Return an ensemble in which the lexicon of every member has each of `words`.

        Args:
            words: Any words, known ones among them.

        Returns:
            The new ensemble; it shares every parameter with this one.
        """
        words = check_words(words)
        members = [member.with_words(words) for member in self._members]
        return shallow_copy(self, members=nn.ModuleList(members))

    def encode_labels(self, labels: Sequence[Sequence[Any]]) -> Shaped[Tensor, "batch word *tag"]:
        """Turn tag names into ids, padded with -100 (`Decoder.encode_labels`).

        Args:
            labels: A list of tag names per sentence.

        Returns:
            The ids, ``(batch, word)`` int64; with sets of names, ``(batch, word, tag)`` bool.

        Raises:
            ValueError: If a name is outside the tag set, or the constraints of a member forbid a
                sequence.
        """
        encoded = [member.encode_labels(labels) for member in self._members]
        return encoded[0]

    @property
    def _members(self) -> list[SequenceTagger]:
        return list(self.members)  # type: ignore[arg-type]

    @property
    def _shares_inputs(self) -> bool:
        first = self._members[0].prepare
        return self.lexicon is not None and all(member.prepare == first for member in self._members)

    def _each(self, inputs: Any) -> list[tuple[SequenceTagger, Any]]:
        """Pair the members with their inputs."""
        if self._shares_inputs:
            return [(member, inputs) for member in self._members]
        rule = f"be a tuple of the inputs of {len(self.members)} members, as encode makes it"
        fits = isinstance(inputs, tuple) and len(inputs) == len(self.members)
        require_type(fits, "inputs", rule, inputs)
        return list(zip(self._members, inputs, strict=True))

    def _entity_vote(self, votes: Tensor) -> Tensor:
        """Vote on entities over each row's valid words."""
        names = [
            [[self.tags[tag] for tag in row if tag != IGNORE_INDEX] for row in member]
            for member in votes.tolist()
        ]
        rows = voting.entity_vote(names, scheme=self.scheme)
        elected = [self.tags.index(name) for row in rows for name in row]
        valid = votes[0].ne(IGNORE_INDEX)
        return votes[0].masked_scatter(valid, votes.new_tensor(elected))

    def get_config(self) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"members": self._members, "vote": self.vote, "scheme": self.scheme}
