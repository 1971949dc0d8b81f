"""Consensus metadata: the term, the vote and the committed config that one replica must never forget."""

from .config_codec import decode_config, encode_config, members_from_json, members_json
from .consensus_meta import FOLDER, ConsensusMeta, path_of, term_of
from .view import CmetaView, cmeta_json, config_json, read_cmeta

__all__ = [
    "FOLDER",
    "CmetaView",
    "ConsensusMeta",
    "cmeta_json",
    "config_json",
    "decode_config",
    "encode_config",
    "members_from_json",
    "members_json",
    "path_of",
    "read_cmeta",
    "term_of",
]
