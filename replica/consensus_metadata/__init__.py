"""Consensus metadata: the term, the vote and the committed config that one replica must never forget."""

from .config_codec import decode_config, encode_config, members_from_json, members_json
from .consensus_meta import FOLDER, ConsensusMeta, path_of, term_of
from .view import CmetaView, cmeta_json, read_cmeta
