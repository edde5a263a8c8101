"""Seeds that once failed, with the cause. They run in every test and in continuous integration."""

from __future__ import annotations

from typing import Final

ONCE_FAILED: Final = {
    "txn-14": "a producer's batches in flight at a kill were written twice: the restarted broker knew the last only, "
    "and the client renumbered what it had sent before",
    "network-35": "an OffsetCommit that came late on a stalled connection put the group's offsets back",
    "flush-1": "a replica that had moved to another log directory never heard that what was synced was written; and "
    "one whose records were deleted in the middle of a batch never arrived",
    "crash-27008": "the answer to a commit of an old generation put a member out of the one that it was joining: it "
    "went on with its partitions in generation -1",
    "disk-40000": "of the batches that a producer had in flight at a stop only those in the last segment were known "
    "after it: the others were refused as out of order",
    "cluster-118": "a consumer that had read on while it asked a new leader where the old epoch ended was set back",
    "power-3": "a log that recovery had cut at its recovery point: the cut was never synced, and the next power loss "
    "brought back what had been behind it",
    "power-200024": "the same",
    "rot-201042": "a batch below the recovery point that seemed to be a marker once a bit had flipped kept its log "
    "from being opened",
    "flush-201006": "after a loss of power no transactional id that was new could be initialized while old ones were "
    "still in doubt",
    "flush-201057": "the simulator's: a sender that filled the window was called for every byte that got free, cut "
    "what it sent into ever smaller pieces, and large answers took longer than a request may",
    "flush-64000": "a log start that DeleteRecords had moved was seen before it was on the disk, and was lower after a "
    "power loss",
    "spark-30006": "the simulator's: what a paused process had been about to do was thrown away before its tasks were "
    "counted among the dead",
    "spark-30010": "the simulator's: a task of Spark's failed when the driver that would have heard of it was dead",
    "spark-94000": "the same",
    "spark-201058": "the simulator's: a task that had been given up used a producer that a later task had taken over",
    "unclean-1": "a client took the answer of a broker that had just started and knew no brokers for its metadata",
    "cluster5-1": "a leader whose replica had been moved away was made anew, empty, by the next fetch, and its "
    "followers cut their logs down to it",
    "cluster5-300002": "a replica that began in the middle of a batch, after DeleteRecords, got that batch for ever",
    "cluster5-23": "the simulator's: whoever a leader took into the ISR that was shutting down, and left it in the "
    "same step, was not expected to lead",
    "blackout-300006": "a broker that had not been told yet whom to follow told a consumer that its offset was out of "
    "range, and it began anew",
    "blackout-300014": "the simulator's: names of files were lost with the rename of an earlier directory of that name",
    "blackout-70002": "of a log whose file of leader epochs was lost with the power only those were known again that "
    "the last, unchecked batches were of",
    "blackout-81004": "a broker that became the controller while another one registered refused to start",
    "blackout-81010": "the checker's mistake: a replica whose file of leader epochs was lost with the power knew none "
    "of what compaction had removed",
    "all-200019": "between a replica that had moved to another log directory and the log that took its place requests "
    "were answered with storage errors",
    "cluster5-200067": "followers told their leader of a log start before it was on their disks: DeleteRecords was "
    "answered, all of them were killed, and records were back",
    "unclean-84023": "more batches than a broker remembers were under way to an old and a new leader: one that was "
    "written already was out of order to the new one until it expired",
    "unclean-310007": "two fetches of a follower lost their session, each began another, and partitions followed in "
    "between were in the one that was dropped",
    "cluster5-310003": "a follower that led before its leader's log start was on its disk began earlier than that",
    "all-320009": "a batch that stalled on an earlier connection was refused on the next one for the lack of one that "
    "had expired, renumbered, and written twice",
    "cluster5-320019": "the checker's mistake: a leader that followed another one between two looks began with what "
    "that had told it",
    "cluster5-500030": "the checker's mistake: a leader that was cut off had deleted records, which nobody was told; "
    "the next one had them",
    "cluster5-500081": "the same",
    "network-300002": "the checker's mistake: a member that does not hear that it is to give up a partition loses it "
    "by its rebalance timeout, before its session ends",
    "succession-1795290841": "the checker's mistake: what compaction removed before it was copied has no epoch there",
    "blackout-330015": "the same, where a file of leader epochs was read anew from the batches",
    "blackout-330030": "a power loss kept a newer file of leader epochs and an older end of the log: followers cut off "
    "what they copied, for ever",
    "blackout-500034": "a consumer was put out of a group while it asked leader after leader whether they still had "
    "what it had read: a KeyError came out of poll",
    "cluster5-500056": "a leader deposed while an append waited for its slow disk acknowledged it once its successor's "
    "high watermark was there",
    "handover-500053": "the same",
    "txn-500073": "a broker that was told to stop in the moment in which its logs had work lost the cancellation of "
    "that job in asyncio.wait_for, and ran for ever",
    "cluster5-500016": "a broker that was no coordinator any more answered AddPartitionsToTxn without a partition and "
    "without an error: records came into the transaction before, which was being committed",
    "blackout-600004": "a power loss undid the renaming of a deleted topic's directory, the next topic of its name had "
    "one elsewhere: the broker refused to start",
    "all-600044": "records of a transaction that expired left gaps in the producer's sequences: what it sent from then "
    "on was refused, for ever",
    "handover-600111": "five batches overtook one that was with a leader that had been cut off: the next leader, which "
    "had it, did not know it again",
    "rot-700022": "the simulator's: a reader that tries its way over broken batches waited for the end of the log each "
    "time",
    "rot-800115": "the simulator's: a reader went on looking for an end that recovery had cut off, and began anew each "
    "time",
    "cluster5-800075": "the checker's mistake: a leader whose replica was moved away took the next one into the ISR "
    "and left it in the same step",
    "unclean-950060": "the checker's mistake: a leader that had been cut off told, right after the last fault, where "
    "its own log ended",
    "flush-800093": "a power loss after a clean stop brought back a segment that recovery had removed: the log had a "
    "hole, and what was acknowledged behind it was cut off later",
    "flush-1000024": "a partition that was being opened was not asked for with the others of a transaction, and was "
    "there when the answer came: the commit did not reach it",
    "crash-1000049": "a transaction's marker lay below where DeleteRecords had put the log's start: after a kill it "
    "was open for ever",
    "cluster5-1000087": "a broker that stopped while the metadata store did not answer told so with a traceback",
    "cluster5-1001125": "a broker whose session was given up while it started refused to start",
    "cluster5-1001163": "the simulator's: a member of a group that was stopped believed in an answer of before",
    "all-1001339": "a topic was deleted while a thread synced its directory on a slow disk: the whole log directory "
    "went offline",
    "blackout-1001613": "the checker's mistake: a topic that was made anew had been without a leader since before",
    "all-1100029": "a topic's partition could not be made in the first log directory, as the disk was full, and was in "
    "the second: the next start found it in both and refused",
    "cluster5-1100278": "a new leader answered DeleteRecords without waiting for an in-sync replica that had not "
    "fetched from it yet: that led next, with the records",
    "handover-1100418": "a topic was told to a broker, whose answer was lost, and deleted before it was told again: "
    "the broker kept it",
    "descriptors-2": "a segment that could not be begun for want of descriptors stayed: the log went on in the one "
    "before, and the next start cut off what lay behind",
    "network-1101088": "the simulator's: a member of a KIP-848 group that took its partitions for lost did not ask",
    "network-1104044": "the leader of a group got no metadata, shared its topic out as empty, and asked for it no more",
    "flush-1104027": "the simulator's: a broker was asked to stop when it was dead",
    "late-21": "a fetch on a connection that its follower had given up came late: the leader took it for behind, and "
    "out of the ISR it stayed",
    "power-201056": "a partition that had lost all it knew of a producer with the power took the batch behind one that "
    "was too large: the parts of that were out of order from then on",
    "crash-201112": "the first batches of a producer came while the partition was checked after a crash, the next one "
    "when it was open: that was taken before them",
    "power-1": "a file lost its end, the next one was whole: the checker's mistake, recovery looks at each by itself",
}


def parse(name: str) -> tuple[int, str]:
    """`txn-14` as seed and profile."""
    profile, _, seed = name.rpartition("-")
    return int(seed), profile
