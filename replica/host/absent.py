"""Answers for a tablet that this server has no running replica of."""

from __future__ import annotations

from nyala.replica.base import DataState


def absent_reply(message: object, *, uuid: str, data_state: DataState, kept_term: int = 0) -> object:
    raise NotImplementedError
