"""Federations on a network: the machines of `fedbandit.machines` with sockets, stores and identities around them.

| where          | what                                                                                             |
|----------------|--------------------------------------------------------------------------------------------------|
| `client/`      | the client that a service embeds: durable, offline-first, one connection in the background       |
| `coordinator/` | federations, their members and limits, the host that serves them, and its configuration          |
| `relay/`       | a coordinator to the clients below, one member above                                             |
| `peer/`        | peers without a coordinator, in rounds                                                           |
| `stores/`      | journals in SQLite, PostgreSQL or memory                                                         |
| `envelope`     | who sends a frame: incarnation, epoch, nonce, and the chain of uploads                           |
| `invitation`   | what all members of a federation agree on                                                        |
| `resolved`     | an invitation: the agreement, and the numbers that a client in any language needs                |
| `carried`      | statistics under new terms, for `fedbandit migrate`                                              |
| `migrated`     | what a federation remembers of its migrations, and tells clients                                 |
| `sums`         | secure sums: what both sides need to know                                                        |
| `refusal`      | why a message is refused: a sentence, a kind, an HTTP status                                     |
| `credentials`  | tokens and roles                                                                                 |
| `certificates` | a certificate authority of one's own                                                             |
| `certified`    | certificates of the keys by which clients know one another in secure sums                        |
| `addresses`    | hosts, ports, loopback, listening sockets                                                        |
| `clock`        | the time of day: clocks that are set do no harm                                                  |
| `logs`         | structured logs on standard error                                                                |
| `jsonable`     | JSON of others, read one way only; numbers that JSON does not have                               |

`client/` needs NumPy and websockets only; nothing that it imports may load the coordinator's libraries.
"""
