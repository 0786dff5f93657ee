"""Bad files: one sentence with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedbandit as fb
from fedbandit.errors import FedbanditError

SMALL: dict[str, Any] = {"dim": 5, "n_arms": 6}


def lastfm(data: Path, **keywords: Any) -> object:
    return fb.environments.lastfm(data, **{**SMALL, **keywords})


def delicious(data: Path, **keywords: Any) -> object:
    return fb.environments.delicious(data, **{**SMALL, **keywords})


def movies(release: str) -> Callable[..., object]:
    def make(data: Path, **keywords: Any) -> object:
        return fb.environments.movielens(data, release=release, **{**SMALL, "most_active": 8, **keywords})

    return make


def cut(lines: list[bytes]) -> list[bytes]:
    """The file ends in the middle of its last line."""
    return [*lines[:-1], lines[-1].rsplit(b"\t", 1)[0].rsplit(b"::", 1)[0].rsplit(b",", 1)[0]]


def line(number: int, text: bytes) -> Callable[[list[bytes]], list[bytes]]:
    """Another text on one line."""
    return lambda lines: [*lines[: number - 1], text, *lines[number:]]


def twice(number: int) -> Callable[[list[bytes]], list[bytes]]:
    """One line once more, after the third."""
    return lambda lines: [*lines[:3], lines[number - 1], *lines[3:]]


def added(text: bytes) -> Callable[[list[bytes]], list[bytes]]:
    """One more line, after the third."""
    return lambda lines: [*lines[:3], text, *lines[3:]]


Case = tuple[Callable[..., object], str, Callable[[list[bytes]], list[bytes]], str]
CASES: dict[str, Case] = {
    "truncated numbers": (lastfm, "lastfm-2k/user_artists.dat", cut, r"line 260: 2 columns instead of 3; .* truncated"),
    "truncated ratings": (movies("1m"), "ml-1m/ratings.dat", cut, r"line 779: 3 columns instead of 4; .* truncated"),
    "truncated movies": (movies("1m"), "ml-1m/movies.dat", cut, r"line 80: 2 columns instead of 3; .* truncated"),
    "truncated csv": (movies("20m"), "ml-20m/movies.csv", cut, r"line 81: 2 columns instead of 3; .* truncated"),
    "too many columns": (lastfm, "lastfm-2k/user_friends.dat", added(b"2\t5\t8"), r"line 4: 3 columns instead of 2"),
    "blank line": (lastfm, "lastfm-2k/user_friends.dat", added(b""), r"line 4: 0 columns instead of 2"),
    "one long, one short": (
        lastfm,
        "lastfm-2k/user_friends.dat",
        lambda lines: [*lines[:2], b"2\t5\t8", b"7", *lines[2:]],
        r"line 3: 3 columns instead of 2",
    ),
    "empty file": (lastfm, "lastfm-2k/user_artists.dat", lambda _: [], r"line 1: the file is empty"),
    "header only": (lastfm, "lastfm-2k/user_artists.dat", lambda lines: lines[:1], r"line 2: there is no data"),
    "texts: header only": (lastfm, "lastfm-2k/artists.dat", lambda lines: lines[:1], r"line 2: there is no data"),
    "utf-16": (
        lastfm,
        "lastfm-2k/tags.dat",
        lambda lines: [b"\n".join(lines).decode("latin-1").encode("utf-16")],
        r"line 1: the encoding is UTF-16",
    ),
    "not ascii": (lastfm, "lastfm-2k/user_artists.dat", added(b"2\t5\t\xb2"), r"line 4: the byte 0xb2 is not ASCII"),
    "not utf-8": (
        lastfm,
        "lastfm-2k/artists.dat",
        added(b"7777\tK\xfcnstler\t\t"),
        r"line 4: the byte 0xfc is not UTF-8, so the encoding is wrong",
    ),
    "tags not utf-8": (movies("20m"), "ml-20m/tags.csv", added(b"1,1,\xe9,1"), r"line 4: the byte 0xe9 is not UTF-8"),
    "zero byte": (delicious, "delicious-2k/tags.dat", added(b"\0"), r"line 4: a zero byte stands there"),
    "missing column": (
        lastfm,
        "lastfm-2k/user_artists.dat",
        line(1, b"userID\tartist\tweight"),
        r"line 1: the column 'artistID' is missing; there are userID, artist, weight",
    ),
    "missing csv column": (
        movies("20m"),
        "ml-20m/movies.csv",
        line(1, b"movieId,title,genre"),
        r"line 1: the column 'genres' is missing",
    ),
    "not a number": (lastfm, "lastfm-2k/user_friends.dat", added(b"2\tx"), r"line 4: friendID is 'x', not a number"),
    "infinite": (lastfm, "lastfm-2k/user_friends.dat", added(b"2\tinf"), r"line 4: friendID is 'inf', not a number"),
    "half an id": (lastfm, "lastfm-2k/user_friends.dat", added(b"2\t5.5"), r"line 4: friendID is 5.5, not a whole"),
    "bad text id": (lastfm, "lastfm-2k/artists.dat", added(b"-3\ta\tb\tc"), r"line 4: id is '-3', not a whole number"),
    "no plays": (lastfm, "lastfm-2k/user_artists.dat", added(b"2\t9\t0"), r"line 4: weight is not a number of plays"),
    "duplicated pair": (
        lastfm,
        "lastfm-2k/user_artists.dat",
        twice(2),
        r"line 4: userID 2, artistID \d+ is duplicated; it stands on line 2 already",
    ),
    "duplicated tag": (
        delicious,
        "delicious-2k/user_taggedbookmarks.dat",
        twice(3),
        r"line 4: .*tagID \d+ is duplicated; it stands on line 3 already",
    ),
    "duplicated rating": (movies("1m"), "ml-1m/ratings.dat", twice(1), r"line 4: UserID 1, MovieID \d+ is duplicated"),
    "duplicated artist": (lastfm, "lastfm-2k/artists.dat", twice(2), r"line 4: id 5 is duplicated; .* line 2"),
    "unknown artist": (
        lastfm,
        "lastfm-2k/user_artists.dat",
        added(b"2\t4444\t1"),
        r"line 4: artistID 4444 is unknown: it is not in artists.dat",
    ),
    "unknown tag": (
        lastfm,
        "lastfm-2k/user_taggedartists.dat",
        added(b"2\t5\t4444\t1\t1\t2009"),
        r"line 4: tagID 4444 is unknown",
    ),
    "unknown movie": (movies("1m"), "ml-1m/ratings.dat", added(b"1::4444::5::1"), r"line 4: MovieID 4444 is unknown"),
    "unknown tagged movie": (
        movies("20m"),
        "ml-20m/tags.csv",
        added(b"1,4444,x,1"),
        r"line 4: movieId '4444' is unknown",
    ),
    "unknown user": (movies("1m"), "ml-1m/ratings.dat", added(b"4444::1::5::1"), r"line 4: UserID 4444 is unknown"),
    "friend without likes": (
        lastfm,
        "lastfm-2k/user_friends.dat",
        added(b"2\t4444"),
        r"line 4: friendID 4444 is unknown: that user has no liked artist",
    ),
    "tagger without likes": (
        lastfm,
        "lastfm-2k/user_taggedartists.dat",
        added(b"4444\t5\t1\t1\t1\t2009"),
        r"line 4: userID 4444 is unknown: that user listened to no artist",
    ),
    "user without ratings": (
        movies("1m"),
        "ml-1m/users.dat",
        added(b"4444::F::1::1::1"),
        r"line 4: user 4444 has no rating in ratings.dat",
    ),
    "impossible rating": (movies("20m"), "ml-20m/ratings.csv", added(b"1,1,7,1"), r"the rating is 7, not between"),
    "strange genre": (
        movies("100k"),
        "ml-100k/u.item",
        lambda lines: [lines[0], lines[1][:-1] + b"2", *lines[2:]],
        r"line 2: a genre is marked by something else than 0 or 1",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_files_are_refused_with_file_and_line(name: str, data: Path) -> None:
    make, path, spoil, sentence = CASES[name]
    file = data / path
    content = file.read_bytes()
    end = b"\r\n" if b"\r\n" in content else b"\n"
    spoilt = spoil(content.removesuffix(end).split(end))
    file.write_bytes(end.join(spoilt) + (end if spoilt and spoil is not cut else b""))
    with pytest.raises(FedbanditError) as refused:
        make(data)
    text = str(refused.value)
    assert str(file) in text
    assert re.search(sentence, text), text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("make", "keywords", "sentence"),
    [
        (lastfm, {"min_observations": 350}, r"user_taggedartists.dat': no user is left, .* 350 taggings; the most are"),
        (lastfm, {"most_active": 99}, r"most_active is 99, but there are only 24 users"),
        (lastfm, {"n_arms": 99}, r"there are no 98 to offer beside a liked one; n_arms may be at most \d+"),
        (lastfm, {"dim": 20}, r"tags of artists: 80 × 20 is too little for 20 dimensions"),
        (lastfm, {"dim": 0}, r"dim is 0, but must be a whole number ≥ 1"),
        (lastfm, {"n_arms": 1}, r"n_arms is 1"),
        (lastfm, {"events": "heard"}, r"events is 'heard', but must be 'tagged' or 'listened'"),
        (lastfm, {"n_clusters": 24}, r"n_clusters is 24, but must be at least 1 and below the 24 users"),
        (lastfm, {"n_clusters": 2, "most_active": 1}, r"no two of the users that stay are friends"),
        (movies("20m"), {"min_rating": 6.0}, r"ratings.csv': no rating is at least min_rating = 6"),
        (movies("1m"), {"dim": 1}, r"dim is 1, but must be at least 2 for genres and ratings"),
    ],
)
def test_keywords_that_leave_nothing_are_refused(
    data: Path, make: Callable[..., object], keywords: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(FedbanditError, match=sentence):
        make(data, **keywords)


def test_without_a_social_network_there_are_no_clusters(data: Path) -> None:
    (data / "delicious-2k/user_contacts.dat").unlink()
    assert fb.environments.delicious(data, **SMALL).n_clients == 24
    with pytest.raises(FedbanditError, match=r"has no social network beside it"):
        delicious(data, n_clusters=4)


def test_bookmarks_without_tags_count_as_likes(data: Path) -> None:
    before = fb.environments.delicious(data, **SMALL)
    page = before.item_ids[np_first_not_liked(before)]
    path = data / "delicious-2k/user_bookmarks_untagged.dat"
    path.write_text(f"userID\tbookmarkID\n{before.user_ids[0]}\t{page}\n{before.user_ids[0]}\t999999\n")
    after = fb.environments.delicious(data, **SMALL)
    assert after.longest == len(before.users) + 1  # the other one has no context
    assert "1 interactions with 1 items that have no tags" in after.notes[0]


def np_first_not_liked(env: fb.environments.LikedItems) -> int:
    """The first item that the first user did not like."""
    theirs = set(env.liked[: env.liked_from[1]].tolist())
    return next(item for item in range(len(env.X)) if item not in theirs)


def test_simulated_users_need_enough_users(data: Path) -> None:
    with pytest.raises(FedbanditError, match=r"n_clients is 70, but there are only 60 users"):
        fb.environments.movielens_users(data, release="1m", n_clients=70, dim=4, n_clusters=3)
    with pytest.raises(FedbanditError, match=r"n_clients is 5, but must be at least dim = 10"):
        fb.environments.movielens_users(data, release="1m", n_clients=5)


def test_headers_of_100k_may_be_there_or_not(data: Path) -> None:
    before = movies("100k")(data)
    folder = data / "ml-100k"
    (folder / "u.data").write_bytes(b"user_id\titem_id\trating\ttimestamp\n" + (folder / "u.data").read_bytes())
    assert isinstance(before, fb.environments.MovieLens)
    after = movies("100k")(data)
    assert isinstance(after, fb.environments.MovieLens)
    assert (after.X == before.X).all()


def test_ratings_without_times_are_read_too(data: Path) -> None:
    before = movies("1m")(data)
    file = data / "ml-1m/ratings.dat"
    lines = file.read_text().splitlines()
    (data / "ml-1m/ratings_no_timestamp.dat").write_text("".join(text.rsplit("::", 1)[0] + "\n" for text in lines))
    file.unlink()
    after = movies("1m")(data)
    assert isinstance(before, fb.environments.MovieLens)
    assert isinstance(after, fb.environments.MovieLens)
    assert (after.X == before.X).all()
