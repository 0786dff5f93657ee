"""Rank and reward for an application in any language: a member of a federation behind an HTTP service.

| module     | what                                                                |
|------------|---------------------------------------------------------------------|
| `gateway`  | what ranking, rewards, deadlines and shadow mode mean; no HTTP      |
| `requests` | what applications send: read, or refused                            |
| `events`   | events in a SQLite file: what was answered, what waits for a reward |
| `watch`    | a thread that goes on after errors, and says what fails             |
| `report`   | what was earned, and what would have been                           |
| `service`  | the HTTP service                                                    |
| `openapi`  | its description                                                     |
"""
