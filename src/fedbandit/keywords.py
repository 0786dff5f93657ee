"""What the keywords of systems, environments and parts mean, for `--help` and `fedbandit list NAME`.

Here is what many share. What one system, environment or part alone takes, it explains in its docstring ("c: …"); one
whose docstring is long, or that means something else by a shared keyword, may have an entry "name.keyword" here.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import getdoc, unwrap
from itertools import takewhile
from typing import Any, Literal

SYSTEMS = {
    # common
    "ridge": "λ > 0 of the ridge regression: V(λ) = V + λI. Larger trusts few data less. By default 0.1 (FCLUB: 1).",
    "noise": "σ ≥ 0 that widths assume for one reward; by default what the environment declares.",
    "confidence": "δ in (0, 1): widths hold with probability 1 − δ. Smaller explores more. 0.1.",
    "alpha": "a fixed width α ≥ 0 instead of the formula: the bonus is α ‖x‖ in V(λ)⁻¹. Larger explores more.",
    "policy": "which arm to pull: ucb (default), igw, lints, linphe, greedy, widest, uniform, squared, my.py:MyPolicy.",
    "discount": "0 < γ ≤ 1: what an observation counts a round later, so that models follow changes. 1 for ever; "
    "changes:3 by D-LinUCB's formula for as many changes.",
    "window": "≥ 2: the number of rounds whose observations count, or adaptive: as many as a test finds no change in.",
    "privacy": "a privacy part: what may leave, and at what cost.",
    # when clients speak
    "gamma_upload": "γ_U ≥ 1: a client uploads when det V(λ) is more than γ_U times what it was after its last upload. "
    "1 speaks at every observation, inf never; or a rule of App. E by name: 'exp(1/N)', 'exp(1/sqrt(N))', "
    "'messages:20000', 'regret:2'.",
    "at_least": "a least number of observations in an upload: of a single one x and y can be read off",
    "gamma_download": "γ_D ≥ 1: a client is sent a download when the coordinator's det V(λ) is more than γ_D times "
    "that of what the client has. 1 after every upload, inf never.",
    "warm_join": "whether a client that first acts is sent what the coordinator has (for production), or starts "
    "empty (the paper).",
    "threshold": "D ≥ 0: a client asks for a synchronisation when Δn · log det growth exceeds D; by default of the "
    "order T/(N d log T). 0 always, inf never.",
    "factor_upload": "≥ 1: a client uploads when it has this many times as many observations as it had uploaded.",
    "factor_download": "≥ 1: a client is sent a download when there are this many times as many observations.",
    "batch": "the least number of observations between two uploads.",
    "growth": "> 1: clusters are looked for again when everybody has acted this many times as often.",
    "upload": "≥ 1: a local cluster uploads when det V(λ) is more than this many times what it was.",
    "download": "≥ 1: a local cluster is sent a download when the shared det V(λ) is this many times its own.",
    "topology": "central, or who is whose neighbour: complete, ring, line, star, grid, or a matrix.",
    "ttl": "γ ≥ 1: how many hops a message travels, and how many estimators take turns.",
    "cliques": "whether a peer shares with its clique of the graph's γ-th power only, not with all within γ hops.",
    "subsample": "whether γ estimators take turns, as in the paper, or one learns in every round.",
    # who shares with whom
    "graph": "the users' graph as a matrix; by default that of the environment.",
    "n_servers": "local servers; by default what the environment declares.",
    "alpha_split": "α₁ > 0: users are told apart when estimates differ by more than α₁ (F(n_i) + F(n_j)). Smaller "
    "splits more.",
    "alpha_merge": "α₂ > 0: clusters are merged when estimates differ by less than α₂ (F(n_i) + F(n_j)). Larger "
    "merges more.",
    "alpha_frequency": "SCLUB's factor for how often users arrive.",
    "within": "whether clusters of one server may be merged too, as in the authors' code.",
    "bonus": "paper: β ‖x‖ in V(λ)⁻¹; authors: without the square root, as in their code.",
    "fresh": "whether arms are scored with pending observations too; false is Alg. 1 line 12.",
    "exploration": "T₀: rounds of pure exploration before clusters are formed, or 'theorem', or 'doubling'.",
    "explore": "what is pulled meanwhile: the widest arms, or random ones.",
    "test_level": "δ of all tests of likeness together; smaller joins more.",
    "pair_level": "δ of one test of likeness, as in the authors' code.",
    "test_threshold": "v^c itself: a pair is alike if its statistic is at most this.",
    "margin": "ψ^c, how unlike members of one cluster may be: data, tight, published or none.",
    "gap": "γ of Theorem 3.3: how far apart clusters are at least.",
    "n_clusters": "M of Theorem 3.3: how many clusters there are.",
    "regularity": "λ_c of Theorem 3.3: the least eigenvalue of a random context's second moments.",
    "test": "a function of your own that says who is like whom.",
    "recluster": "whether clusters are formed anew, and when: round or request.",
    "hetofedbandit_async.recluster": "> 1: clusters are formed anew when the rounds have grown this many times.",
    "shares": "what a served cluster is sent: models of all its members, or their buffers added (Alg. 2).",
    "requests": "for which of its clusters a client asks: the largest, or all.",
    "as_printed": "the paper to the letter instead of the tuned defaults.",
    "feducb.calibration": "proven (tight noise with a proof; usual), or published (usual with as_printed).",
    "feducb.as_printed": "Alg. 1 to the letter: published noise, Theorem 1's D, V = Mρ_min I at first, line 12.",
    "feducb.width": "under published: Prop. 2 corrected (log det V), or printed (d log det V).",
    "retest": "≥ 1: DyClu looks at a pair again when observations have grown this many times.",
    "odds": "how many times e^odds likelier one cluster is than two, before there are data.",
    "d_global": "length of the part of the model that everybody shares; by default what the environment declares.",
    "d_local": "length of each client's own part; by default the rest.",
    "overlap": "whether both parts see the whole context.",
    "startup": "whether a client waits with its own part until the shared one is known (Alg. 3).",
    "partial_noise": "≥ 0, added to σ in widths for errors of partial rewards; Lemma 3.3 has 2.",
    "projected": "whether rewards are split as Eq. (7) is printed: generalised inverses, projections to the unit ball.",
    "width": "of a graph model: user (each user's own), model (that of all of them) or printed (Lemmas 2 and 4).",
    "norm": "S of a graph model's width; by default 1 for users, √N for the model.",
    "isolated": "whether a user may be without neighbours in the graph; a mistake more often than not.",
    "dyclu.window": "τ: DyClu looks for changes of a parameter in the last τ observations; none: they never change.",
    "every": "the server looks at its queue once in so many rounds.",
    # privacy
    "epsilon": "ε > 0: whoever sees what leaves can tell neighbouring data apart with odds of at most e^ε; inf is "
    "no noise.",
    "delta": "δ: except with this probability.",
    "calibration": "proven (tight noise with a proof), or published (the paper's noise and numbers).",
    "mechanism": "rewards (noise on each), sums (noise on sums of rewards), or the better of the two.",
    "trust": "nobody (each client's releases are noised), sums (only sums over many clients can be opened) or "
    "coordinator.",
    "own": "exact (a client chooses by its own exact data) or released (choices depend on data through releases only).",
    # parts by name
    "protocol": "a protocol by name, with keywords in brackets: count-triggered(factor_upload=1.5).",
    "structure": "a structure by name, with keywords in brackets.",
}
"""Of presets."""

ENVIRONMENTS = {
    "n_clients": "N ≥ 1 clients.",
    "dim": "d ≥ 1: the length of a context.",
    "n_arms": "K ≥ 1 arms offered in a round.",
    "noise": "σ ≥ 0 of one Gaussian reward; also what systems are told.",
    "pool": "how many arms there are in all, of which K are offered; none: fresh ones in every round.",
    "contexts": "how they are drawn: ball, sphere, or decaying (coordinate i with variance (d − i)/d).",
    "rewards": "gaussian, or bernoulli with the expected reward as its probability.",
    "arrivals": "who acts: uniform, round-robin, skewed (Zipf 1.5), or a probability for each client.",
    "rounds": "one: one client acts in a round; all: each of the N acts once in every round.",
    "delay": "rewards come this many interactions late: a number, or a range 1,10.",
    "drift": "rounds after which all parameters are drawn anew.",
    "absent": "the probability with which a client is out of reach when everybody is called.",
    "n_clusters": "M clusters of clients with like parameters.",
    "gap": "the least distance between parameters of different clusters.",
    "feducb.gap": "in [0, 0.3]: means are in [0.5, 0.6], that of the best arm in [0.6, 0.7] + gap.",
    "spread": "how far a client's parameter may be from its cluster's centre.",
    "sizes": "of clusters: equal (none), random, or numbers that sum to N.",
    "n_servers": "local servers, each with a block of consecutive users.",
    "theta": "users' parameters from a file or an array (N, d), instead of drawn ones.",
    "placement": "mixed: every server has users of all clusters; blocks: clusters are consecutive users.",
    "threshold": "similarities of users below this are cut from the graph.",
    "normalise": "whether rows or columns of the graph's weights sum to one.",
    "signed": "whether contexts have entries of both signs.",
    "d_global": "length of the part of the parameter that everybody shares.",
    "path": "the folder of the data set, or the recorded file.",
    "bound": "the largest norm of a context; by default that of the data.",
    "events": "which of the data's events are likes: tagged or listened.",
    "min_observations": "users with fewer are left out.",
    "min_rating": "ratings below this are no likes.",
    "most_active": "how many users, the most active ones first.",
    "first": "only so many users of the file or the ranking, the first ones.",
    "social": "banditlib, or a folder: the social network and clusters that the authors' lab published.",
    "groups": "how many groups of users and of articles there are, each with a mask on its features.",
    "features": "entries before masking: uniform, or gaussian as in the lab's code.",
    "users": "users' parameters, from a file of the lab or an array.",
    "articles": "the pool of articles, from a file of the lab or an array.",
    "release": "which release of MovieLens: 100k or 1m.",
}
"""Of environments."""


PARTS = {
    "alpha": "α ≥ 0, a fixed width instead of the formula. Larger explores more.",
    "linphe.alpha": "α ≥ 0: the standard deviation of the noise that is added to past rewards; by default σ.",
    "linphe.confidence": "not used: the spread of what is drawn is α.",
    "lints.alpha": "α ≥ 0: the spread of the parameters that are drawn; by default σ.",
    "lints.confidence": "not used: the spread of what is drawn is α.",
    "scale": "γ = scale · √(K n/Σα²) after n observations, with the widths α of what is offered. Larger explores less.",
    "gamma": "γ ≥ 0 itself, the same in every round.",
    "evidence-clusters.recluster": "≥ 1: clusters are looked for again when the rounds have grown this many times; "
    "none: when the protocol says so.",
    "homogeneity-cliques.recluster": "≥ 1: clusters are looked for again when the rounds have grown this many times; "
    "none: when the protocol says so.",
    "central": "whether all data are in one place; otherwise users keep theirs and speak by the protocol.",
    "weighted": "whether edges count by their weights, or alike.",
    "fresh": "whether arms are scored with observations that are not yet released or merged.",
    "neighbourhoods.window": "τ: changes of a parameter are looked for in the last τ observations; none: never.",
    "change_level": "how unlikely an observation has to be to count against its user's model.",
    "change_failure": "the probability with which a change may be found where there is none.",
    "first": "phases before everybody has acted this often, on average, are passed over.",
    "labels": "a label for each client: those with the same one share.",
    "gossip.topology": "who is whose neighbour: complete, ring, line, star, grid, erdos-renyi, or a matrix.",
    "gossip.growth": "> 1: a peer tells what it knows when it has this many times the observations that it had told.",
    "gossip.threshold": "D ≥ 0 instead of growth: a peer tells when Δn · log det growth exceeds D, or 'theorem'.",
    "scheduled.growth": "> 1: everybody uploads when each client has acted this many times as often as before.",
    "scheduled.batch": "the least number of actions between two synchronisations.",
    "synchronous.growth": "> 1, instead of threshold: a client asks when it has this many times the observations that "
    "it had sent. Reads no data.",
    "order": "which cluster is served first: fifo, or priority (the one that has learnt most since).",
    "server-queue.recluster": "whether, and when, everybody uploads and clusters are formed anew: round or request.",
    "low": "the least reward there can be.",
    "high": "the largest reward there can be.",
    "excess": "what becomes of a reward beyond its bounds: clip or refuse.",
    "site": "who draws the noise: client or coordinator.",
    "kind": "of noise: best, dense (few releases), blt (many), endless, tree or independent.",
    "reward-sums.kind": "of noise with δ > 0: best, dense, blt, endless, tree or independent; without, it is a tree.",
    "private-statistics.as_printed": "with calibration published: V = Mρ_min I at first, and line 12's determinant.",
    "private-statistics.width": "with calibration published: Prop. 2 corrected (log det V), or printed (d log det V).",
    "releases": "the most releases that a client may make; by default what the protocol can need until the horizon.",
    "contribution": "none: one interaction is protected; or how many a client may contribute, all protected together.",
    "reward_bound": "B with |y| ≤ B.",
    "reward_weight": "κ > 0: how much of the budget goes to rewards, beside contexts.",
    "theta_bound": "S with ‖θ‖ ≤ S.",
    "failure": "the probability with which widths may fail to account for the noise.",
    "mixing": "how a client weighs what others released: worth (least regret) or bound (proven widths).",
    "counts": "public, or padded: how many rewards a client observed is hidden as well (with scheduled).",
    "honest": "for trust=sums: at least so many clients of a sum tell nobody their noise; by default 0.8 N.",
    "colluding": "for trust=sums: at most so many do; by default 0.05 N.",
}
"""Of parts, where that is another than, or not among, `SYSTEMS`."""

SETTLED = ("world", "portions", "neighbours")
"""Fields of parts that a system fills in when it is told its world: no keywords of users."""

Kind = Literal["system", "environment", "part"]


def meaning(maker: str, keyword: str, kind: Kind = "system", made_by: Callable[..., Any] | None = None) -> str:
    """What a keyword of this system, environment or part means; empty if nobody has said.

    What is said here about this maker goes before what its docstring says, and that before what many share.

    >>> meaning("feducb", "ttl")
    'γ ≥ 1: how many hops a message travels, and how many estimators take turns.'
    >>> meaning("fixed-groups", "labels", "part")
    'a label for each client: those with the same one share.'
    """
    tables = {"system": (SYSTEMS,), "environment": (ENVIRONMENTS,), "part": (PARTS, SYSTEMS)}[kind]
    here, shared = ([table.get(name) for table in tables] for name in (f"{maker}.{keyword}", keyword))
    own = "" if made_by is None else said_by(made_by, keyword)
    return next(filter(None, (*here, own, *shared)), "")


def said_by(maker: Callable[..., Any], keyword: str) -> str:
    """What the docstring says about a keyword: "c: …" at the beginning of a line, and the indented lines after it.

    >>> def greedy(c: float, growth: float):
    ...     '''Greedy now and then.
    ...
    ...     c: how long it explores,
    ...         in observations.
    ...     '''
    >>> said_by(greedy, "c"), said_by(greedy, "growth")
    ('how long it explores, in observations.', '')
    """
    lines = (getdoc(unwrap(maker)) or "").splitlines()
    for k, line in enumerate(lines):
        if line.startswith(f"{keyword}: "):
            more = takewhile(lambda other: other.startswith(" "), lines[k + 1 :])
            return " ".join([line.removeprefix(f"{keyword}: "), *map(str.strip, more)])
    return ""
