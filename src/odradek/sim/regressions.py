"""Seeds that once failed, with the cause. All run in continuous integration, one in four in every test."""

from __future__ import annotations

from typing import Final

ONCE_FAILED: Final = {
    "txn-14": "a kill left a partition with only the last batch of each producer: batches in flight were written twice "
    "after the client had renumbered them",
    "network-35": "an OffsetCommit that arrived late on a stalled connection moved the group's offsets back",
    "flush-1": "a replica that moved to another log directory was not notified of synced writes; one whose records "
    "were deleted inside a batch was copied for ever",
    "crash-27008": "the answer to a commit of an old generation removed a member from the generation that it joined: "
    "it kept its partitions in generation -1",
    "disk-40000": "after a stop only the batches in flight in the last segment were known: the others were rejected as "
    "out of order",
    "cluster-118": "a consumer that read on while it asked a new leader for the end of the old epoch was moved back by "
    "the answer",
    "power-3": "recovery cut a log at its recovery point and did not sync the cut: the next power loss restored the "
    "removed records",
    "power-200024": "as power-3",
    "rot-201042": "a flipped bit made a batch below the recovery point look like a marker: its log could not be opened",
    "flush-201006": "after a power loss no new transactional id could be initialized until every old one had a new "
    "producer id",
    "flush-201057": "simulator: a sender with a full window was resumed for every free byte and fragmented its data: "
    "large answers exceeded the request timeout",
    "flush-64000": "a log start that DeleteRecords had advanced was visible before it was durable, and lower after a "
    "power loss",
    "spark-30006": "simulator: pending work of a paused process was dropped before its tasks were counted as dead",
    "spark-30010": "simulator: a Spark task failed after the death of the driver that would have been notified",
    "spark-94000": "as spark-30010",
    "spark-201058": "simulator: an abandoned task used a producer that a later task had taken over",
    "unclean-1": "a client accepted the answer of a broker that had just started and knew no brokers as its metadata",
    "cluster5-1": "a leader whose replica had moved away was recreated empty by the next fetch, and its followers "
    "truncated to it",
    "cluster5-300002": "a replica that started inside a batch, after DeleteRecords, received that batch for ever",
    "cluster5-23": "simulator: a replica that a leader added to the ISR and that left in the same step was not "
    "expected to lead",
    "blackout-300006": "a broker that did not know its leader yet answered OFFSET_OUT_OF_RANGE, and a consumer "
    "restarted at the log start",
    "blackout-300014": "simulator: file names were lost with the rename of an earlier directory of that name",
    "blackout-70002": "a log without its file of leader epochs knew only the epochs of the last, unchecked batches",
    "blackout-81004": "a broker that became the controller while another one registered failed to start",
    "blackout-81010": "checker: a replica whose file of leader epochs was lost knows no epoch of compacted records",
    "all-200019": "requests received storage errors while a moved replica replaced its source",
    "cluster5-200067": "followers reported a log start before it was durable: DeleteRecords was answered, all of them "
    "were killed, and records returned",
    "unclean-84023": "more batches than a broker remembers were in flight to an old and a new leader: a written one "
    "stayed out of order until it expired",
    "unclean-310007": "two fetches of a follower lost their session, each opened another one, and partitions added in "
    "between were only in the dropped one",
    "cluster5-310003": "a follower that led before its leader's log start was durable started earlier than that leader",
    "all-320009": "a batch that stalled on an earlier connection was rejected on the next one because its predecessor "
    "had expired, was renumbered, and was written twice",
    "cluster5-320019": "checker: a leader that followed another one between two looks starts with the high watermark "
    "that it received",
    "cluster5-500030": "checker: a leader that was cut off had deleted records; the next leader, which did not know, "
    "had them",
    "cluster5-500081": "as cluster5-500030",
    "network-300002": "checker: a member that does not learn of a revocation is removed after its rebalance timeout, "
    "before its session ends",
    "succession-1795290841": "checker: records that compaction removed before they were copied have no epoch on the "
    "copy",
    "blackout-330015": "as succession-1795290841, where leader epochs were rebuilt from the batches",
    "blackout-330030": "a power loss kept a newer file of leader epochs and an older end of the log: followers "
    "truncated copied records for ever",
    "blackout-500034": "a partition revoked while a consumer validated positions with several leaders raised KeyError "
    "from poll",
    "cluster5-500056": "a leader deposed while an append waited for its slow disk acknowledged it once its successor's "
    "high watermark reached the offset",
    "handover-500053": "as cluster5-500056",
    "txn-500073": "asyncio.wait_for lost the cancellation of a job with work, and a stopping broker ran for ever",
    "cluster5-500016": "a former coordinator answered AddPartitionsToTxn with neither a partition nor an error: "
    "records entered the previous transaction during its commit",
    "blackout-600004": "a power loss undid the rename of a deleted topic's directory, its successor had another one: "
    "the broker failed to start",
    "all-600044": "expired records of a transaction left a gap in the sequence numbers: the producer's later batches "
    "were rejected for ever",
    "handover-600111": "five batches overtook one that a leader cut off from the cluster delayed: the next leader, "
    "which had it, no longer knew it",
    "rot-700022": "simulator: a consumer that skips broken batches waited for the end of the log each time",
    "rot-800115": "simulator: a consumer waited for an end that recovery had cut off, and restarted each time",
    "cluster5-800075": "checker: a leader whose replica was moved away added another one to the ISR and left it in the "
    "same step",
    "unclean-950060": "checker: a leader that was cut off reported, right after the last fault, the end of its own log",
    "flush-800093": "a power loss after a clean stop restored a segment that recovery had removed: records "
    "acknowledged after the hole were cut off later",
    "flush-1000024": "a partition that was still opening was left out of the verification of a transaction and was "
    "open when the answer arrived: the commit did not reach it",
    "crash-1000049": "DeleteRecords advanced the log start beyond a transaction's marker: after a kill the transaction "
    "was open for ever",
    "cluster5-1000087": "a broker that stopped while the metadata store did not answer logged a traceback",
    "cluster5-1001125": "a broker whose session expired while it started failed to start",
    "cluster5-1001163": "simulator: a paused member of a group relied on the answer to an earlier heartbeat",
    "all-1001339": "a topic was deleted while a thread synced its directory on a slow disk: the log directory went "
    "offline",
    "blackout-1001613": "checker: a recreated topic was considered leaderless since the deletion of the old one",
    "all-1100029": "a partition that failed to be created on a full disk was created in a second log directory: the "
    "next start found both and failed",
    "cluster5-1100278": "a new leader answered DeleteRecords without waiting for an in-sync replica that had not "
    "fetched yet: that one led next, with the records",
    "handover-1100418": "the answer to a new topic was lost, and the topic deleted before the next notice: the broker "
    "kept it",
    "descriptors-2": "a failed roll without descriptors left an empty segment: the log continued in the previous one, "
    "and the next start cut off its end",
    "network-1101088": "simulator: a member of a KIP-848 group that considered its partitions lost did not request its "
    "assignment",
    "network-1104044": "the leader of a group received no metadata, assigned its topic as empty, and did not request "
    "it again",
    "flush-1104027": "simulator: a dead broker was asked to stop",
    "late-21": "a fetch on a connection that its follower had replaced arrived late: the leader removed the follower "
    "from the ISR for good",
    "power-201056": "a partition that had lost a producer's state appended the batch behind one that was too large: "
    "the parts of that one were out of order",
    "crash-201112": "the first batches of a producer arrived while the partition was checked after a crash, the next "
    "one after it: it was appended before them",
    "power-1": "checker: a file lost its end and the next one was complete; recovery checks each file by itself",
    "late-2400003": "a broker whose registration had ended was granted a lease for it while it registered again: it "
    "acted as a leader beside its successor",
    "unconfirmed-115": "a transaction coordinator that was replaced, and did not know it, confirmed a commit that its "
    "successor never received",
    "handover-1795384657": "a promise not to begin to lead partitions counted for one that was created after the "
    "question: two brokers acted as its leader",
    "controllers-39": "a controller that restarted kept records that another leader's log lacked, and could not replay "
    "the next ones",
    "at-once-11": "a controller that was cut off answered a heartbeat after its successor was elected: the broker's "
    "lease outlived its session with the successor, and two brokers acted as a leader",
    "kraft-409031000001": "a deposed controller that was cut off together with a broker kept answering its heartbeats "
    "after its successor was elected: two brokers acted as a leader",
    "early-4": "the same by controllers of Odradek, whose successor was elected sooner than a fetch timeout",
    "kraft-dark-23409000011": "a killed broker of a KRaft cluster registered as one that may have lost records, and "
    "yielded to one whose machine had lost power",
    "kraft-23409000028": "a broker that stood still for longer than its session was unfenced by its next heartbeat, "
    "and led on until it learned of its successor: the end of a partition went back",
    "stale-23409000135": "of the simulator: the metadata store ended the session of a controller that stood still only "
    "after 8.7 s, and promises 6 s",
    "flush-357257000023": "simulator: a batch that a broker had written before it was killed was rejected while the "
    "broker started, and the next one was acknowledged before it",
    "silent-5": "a promise not to begin to lead waited behind a request for a lease, on the same connection to a "
    "controller whose metadata store was silent: the leader could not act",
    "stale-5": "a new leader that a deposed one kept asking for promises denied them, and began none of its partitions",
    "stale-23409000045": "a new controller left a restarted leader in the ISR, although it did not reach the next "
    "leader: the preferred election made it the leader again, and no write was committed for 12 s",
    "cluster5-23409000078": "a follower removed an epoch without records, but not from its file: after a restart it "
    "attributed committed records to that epoch and truncated them",
    "disk-2": "a replica that moved to another directory while writes waited for a slow disk ran in a loop and kept "
    "the write queue from advancing",
    "power-22": "the timeout of a Produce request covered the wait for a slow disk: a later request was acknowledged "
    "before it",
    "handover-1": "a deletion of topics that failed as a whole was answered without any topic",
    "acls-1": "a forwarded request whose entries were all denied got UNKNOWN_SERVER_ERROR",
    "cluster-79000": "a connection attempt without a remaining waiter ended in an error of the event loop",
    "holds-1": "a Metadata request opened the log of every partition that a broker without its lease leads",
    "voters-548441000003": "checker: a voter whose disk was replaced after it had stored a record was not counted",
    "controller-disks-548441000003": "simulator: a controller that ended by itself was never started again",
    "network-548441000001": "a disk that had lagged counted as lagging until the next write: retention kept the last "
    "segment of a log without further writes",
    "audit-23409000007": "checker: three Metadata requests of a user waited for the metadata of a broker that had "
    "started, and were denied in one millisecond",
    "controller-disks-357257000005": "the disk of an active controller failed while it learned of a newer epoch: it "
    "ended, and stayed active until then",
    "late-357257000036": "a leader that waited for its predecessor added a replica to the ISR, and that one, which had "
    "promised nothing, led next: two brokers acted as a leader",
    "stale-990113": "the controlled shutdown of a killed broker arrived late: the controller never ended the fencing "
    "of its next process",
    "stale-519": "checker: a partition without a waiting write was considered unwritable, as a member of its ISR was "
    "cut off: one that has all records stays in sync",
    "upkeep-348998000013": "a leader that had deleted records inside of a batch had forgotten the epochs before it: a "
    "follower with other records below them got the batch again and again, and appended none of it",
    "kraft-dark-348998000003": "a leader asked only the one before, which was fenced and had never begun: the leader "
    "before that did not know of either, and led on",
    "kraft-dark-348998100005": "checker: a killed leader was expected to be replaced within 12 s, and three "
    "controllers elected one after the other gave its registration a session each",
    "audit-348998000035": "simulator: the whole store was away while a broker started, and its refusal did not count "
    "as one with a fault",
    "blackout-562811000018": "the high watermark of a replica that had lost power covered truncated records that were "
    "back",
    "upkeep-562811000060": "a leader whose clock was ahead deleted all records and was deposed: a consumer that had "
    "read them began again at the earliest offset of its successor, and read records a second time",
    "blackout-541181000213": "a killed broker took a topic that was created meanwhile for lost records: it was "
    "eligible nowhere any longer, and the only replica left in sync lost power",
    "voters-541181000257": "checker: the last value was proposed to a leader that had left the voters, and resigned as "
    "soon as everything before that was committed",
    "acls-108036000027": "checker: a broker that had made no request while it was cut off from the store counted as "
    "informed of a deleted user all the time",
    "voters-270050000036": "checker: an empty disk had six seconds for 182 records, one to an answer, and needed more",
    "voters-77100724": "checker: the same for the voters that the leader needs before it knows what is committed",
}
"""Seed -> the fault that it found, in short; "simulator" and "checker" are faults of the test itself."""


def parse(name: str) -> tuple[int, str]:
    """`txn-14` as seed and profile."""
    profile, _, seed = name.rpartition("-")
    return int(seed), profile
