"""Rank and reward for an application in any language: a member of a federation behind an HTTP service.

| module    | what                                                                             |
|-----------|----------------------------------------------------------------------------------|
| `gateway` | what ranking, rewards, deadlines and shadow mode mean; no HTTP                    |
| `events`  | events in a SQLite file: what was answered, what waits for a reward               |
| `report`  | what was earned, and what would have been                                        |
| `service` | the HTTP service                                                                 |
| `openapi` | its description                                                                  |
"""
