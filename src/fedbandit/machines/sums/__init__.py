"""Secure sums: many clients add up numbers, and nobody, the coordinator included, learns more than their sum.

Theory of operation
-------------------
Double masks with dropouts, in five steps a sum (Bonawitz et al. 2017, Fig. 4, with the parts against an active server):

| step | a client sends                            | the coordinator answers, when all have or none waits any more  |
|------|-------------------------------------------|----------------------------------------------------------------|
| 1    | Keys: two fresh public keys, signed       | Roster: everybody's keys, if a quorum sent them                |
| 2    | Shares: of its two secrets, encrypted     | Delivery: to each the shares that are for it                   |
| 3    | Masked: its numbers under all masks       | Survivors: who is in the sum, if a quorum is                   |
| 4    | Agree: its signature under that list      | Agreed: the signatures, if the threshold of clients signed     |
| 5    | Unmask: a share about each, of *one* kind | – the sum is opened, if the threshold of clients sent shares   |

Client u masks x_u with PRG(b_u), which only it knows, and with ±PRG(s_uv) for every other client v, which cancel in the
sum. Of clients in the sum the coordinator learns b_u, of clients that dropped out after step 2 the key behind s_uv: by
t = ⌊(N + c)/2⌋ + 1 shares, where at most c of N clients collude with it. Two sets of t clients have an honest client
in common, and that one signs one list and answers with one kind of share: so there is one sum an epoch, and never
both kinds of one client's shares.

A session is for one epoch and never for another; all its secrets are fresh. Whoever crashes in between is absent.
"""
