"""Kafka's error codes and the exception that carries one.

Source: the enumeration `Errors` of Apache Kafka 4.3 (codes, names, which are retriable); the wording is ours.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ErrorCode(IntEnum):
    """Kafka's error codes with their numbers, whether a client may retry, and a message (Kafka's `Errors`)."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return self in _RETRIABLE

    @property
    def message(self) -> str:
        """The text that a client may show."""
        return _MESSAGES[self]


class KafkaError(Exception):
    """A failure that one side reports to the other: a code, and a message."""

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = code.message if message is None else message
        super().__init__(code, self.message)

    @property
    def retriable(self) -> bool:
        """Whether the request may succeed when it is sent again."""
        return self.code.retriable

    def __str__(self) -> str:
        return f"{self.code.name}: {self.message}"


def error_code(value: int) -> ErrorCode:
    """The code of a number from the wire; one that this version does not know is UNKNOWN_SERVER_ERROR, as in Kafka."""
    return _BY_VALUE.get(value, ErrorCode.UNKNOWN_SERVER_ERROR)


_MESSAGES: Final[dict[int, str]] = {
    -1: "the broker failed in an unexpected way",
    0: "no error",
    1: "the log holds no such offset",
    2: "the record data is damaged or invalid",
    3: "no such topic or partition here",
    4: "the fetch size is invalid",
    5: "the partition has no leader at the moment",
    6: "this broker does not lead or hold the partition",
    7: "the request took too long",
    8: "the broker is not available",
    9: "the replica is not available",
    10: "the batch is larger than allowed",
    11: "a newer controller has taken over",
    12: "the metadata string of an offset is too long",
    13: "the connection broke before the answer",
    14: "the coordinator is still loading",
    15: "the coordinator is not available",
    16: "another broker coordinates this group or transaction",
    17: "the topic is invalid for this operation",
    18: "the record list is larger than a segment may be",
    19: "fewer replicas are in sync than required",
    20: "written, but fewer replicas are in sync than required",
    21: "acks must be -1, 0 or 1",
    22: "the group has moved on to another generation",
    23: "the member shares no protocol with the group",
    24: "the group id is invalid",
    25: "the group has no such member",
    26: "the session timeout is outside the allowed range",
    27: "the group is rebalancing: join again",
    28: "the offset commit is too large",
    29: "not authorized for the topic",
    30: "not authorized for the group",
    31: "not authorized for the cluster",
    32: "the record's timestamp is out of range",
    33: "the SASL mechanism is not enabled",
    34: "the request does not fit the state of authentication",
    35: "this version of the API is not supported",
    36: "the topic exists already",
    37: "the number of partitions is invalid",
    38: "the replication factor is invalid",
    39: "the replica assignment is invalid",
    40: "the configuration is invalid",
    41: "this broker is not the controller",
    42: "the request is malformed or contradicts itself",
    43: "the stored record format does not allow the request",
    44: "a policy forbids the request",
    45: "the producer's sequence number leaves a gap",
    46: "the producer's sequence number was seen before",
    47: "the producer epoch is outdated",
    48: "the transaction's state does not allow this",
    49: "the producer id does not belong to the transactional id",
    50: "the transaction timeout exceeds the broker's maximum",
    51: "another operation on the transaction is under way",
    52: "a newer transaction coordinator has taken over",
    53: "not authorized for the transactional id",
    54: "security is not enabled",
    55: "not attempted, because another part of the request failed",
    56: "a disk operation failed",
    57: "no such log directory",
    58: "authentication failed",
    59: "nothing is known about the producer id",
    60: "a reassignment of the partition is in progress",
    61: "delegation tokens are not enabled",
    62: "no such delegation token",
    63: "the principal neither owns nor may renew the token",
    64: "delegation tokens may not be requested on this connection",
    65: "not authorized for the delegation token",
    66: "the delegation token has expired",
    67: "the principal type is not supported",
    68: "the group still has members",
    69: "no such group",
    70: "no such fetch session",
    71: "the fetch session epoch is invalid",
    72: "the leader has no listener of this name",
    73: "topic deletion is disabled",
    74: "the leader epoch given is outdated",
    75: "the leader epoch given is not known yet",
    76: "the client cannot read the partition's compression",
    77: "the broker has registered again since",
    78: "the new leader's high watermark is not known yet",
    79: "join again with the member id given",
    80: "the preferred leader is not available",
    81: "the group is full",
    82: "another member has taken over the group instance id",
    83: "no eligible leader is available",
    84: "the partition needs no election",
    85: "no reassignment is in progress",
    86: "the group is subscribed to the topic",
    87: "a record does not meet the topic's rules",
    88: "offsets of an open transaction are pending",
    89: "the quota is used up for now",
    90: "a newer producer has taken over the transactional id",
    91: "no such resource",
    92: "the resource occurs twice in the request",
    93: "the credential does not meet the rules",
    94: "the voter sets differ",
    95: "the update version is invalid",
    96: "the feature update failed",
    97: "the forwarded principal could not be read",
    98: "no such snapshot",
    99: "the position is outside the snapshot",
    100: "no topic has this id here",
    101: "the broker id is in use",
    102: "the broker id is not registered",
    103: "the topic id differs from that of the log",
    104: "the cluster id differs",
    105: "no such transactional id",
    106: "the fetch session mixes topic names and ids",
    107: "a proposed in-sync replica is not eligible",
    108: "the change elected another leader",
    109: "the offset lies in tiered storage",
    110: "the group has fenced the member epoch",
    111: "another member still holds the instance id",
    112: "the assignor is not supported",
    113: "the member epoch is outdated",
    114: "the endpoint is of the wrong type",
    115: "the endpoint type is not supported",
    116: "no such controller",
    117: "the telemetry subscription is unknown or outdated",
    118: "the telemetry is larger than allowed",
    119: "the broker registration is invalid",
    120: "the transaction has to be aborted",
    121: "the record's delivery state does not allow this",
    122: "no such share session",
    123: "the share session epoch is invalid",
    124: "the share group's state epoch differs",
    125: "the voter key differs",
    126: "the voter is in the set already",
    127: "the set has no such voter",
    128: "the regular expression is invalid",
    129: "the client's metadata is too old: bootstrap again",
    130: "the topology is invalid",
    131: "the topology epoch is invalid",
    132: "the topology epoch is outdated",
    133: "the broker holds no more share sessions",
}

_RETRIABLE: Final = frozenset(
    {
        2,
        3,
        5,
        6,
        7,
        9,
        13,
        14,
        15,
        16,
        19,
        20,
        41,
        51,
        56,
        70,
        71,
        72,
        74,
        75,
        78,
        80,
        83,
        84,
        88,
        89,
        100,
        103,
        106,
        122,
        123,
        133,
    }
)

_BY_VALUE: Final = {code.value: code for code in ErrorCode}
