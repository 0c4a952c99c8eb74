package main

import "time"

func storms() *proof {
	return &proof{
		id:     "storms",
		method: "Processes and servers are killed, paused, disconnected and run out of space at random moments. Every acknowledged change is still there, every address has exactly the holder that was told, and every answer agrees with a replay of all commits.",
		claims: []claim{survives, neverTwice,
			{boltPage, "An acknowledged commit survives a crash of the process, and a crash of the machine if the disk keeps what it has synced."},
			{boltPage, "With Options.NoSync it survives the death of the process only."},
			{boltPage, "A commit is made wholly or not at all."},
			{boltPage, "A full disk fails the commit with [ErrNoSpace] and changes nothing; commits succeed again when there is room."},
			{boltPage, "A second process gets [ErrLocked], which names the first, or waits."},
			{cniPage, "A call that is killed leaves nothing behind that its DEL does not free."},
		},
		parts: []part{
			{kind: program, dir: "bench/torture/stores", args: []string{"-store", "bolt,sqlite", "-seed", "{seed}", "-duration", "{for/4}"}, weight: 3, least: 20 * time.Second},
			{kind: program, dir: "bench/torture/stores", args: []string{"-store", "postgres", "-seed", "{seed}", "-duration", "{for/2}"}, weight: 3, least: 20 * time.Second},
			{kind: program, dir: "bench/torture/stores", args: []string{"-store", "etcd", "-seed", "{seed}", "-duration", "{for/2}"}, weight: 3, least: 20 * time.Second},
			{kind: program, dir: "bench/torture/stores", args: []string{"-store", "kube", "-seed", "{seed}", "-duration", "{for/2}"}, weight: 3, least: 20 * time.Second},
			tests("cmd/cni-ipam/internal/plugin", "TestKillStorm", "TestKilledCreation", "TestTakeoverStorm"),
			tests("ipset/boltstore", "TestNoSpace", "TestLocked"),
		},
	}
}

// fuzzed has every fuzz target that there is.
func fuzzed(r *repo) *proof {
	p := &proof{
		id:     "fuzz",
		method: "Every fuzz target goes on from the inputs that earlier runs found to reach new code.",
		claims: []claim{neverTwice,
			{"ipset/prefixes/doc.go", "Free neighbours merge into one free prefix at once, so releases restore the larger prefixes."},
		},
	}
	for _, t := range r.fuzz {
		part := part{kind: fuzzing, dir: t.dir, tests: []string{t.name}, unit: "inputs", least: 5 * time.Second}
		if t.dir == "bench/peers" || t.dir == "bench/peers/calico" {
			part.from = time.Hour // instrumenting the peers takes longer than a short run
		}
		p.parts = append(p.parts, part)
	}
	return p
}

func hostile() *proof {
	return &proof{
		id:     "hostile",
		method: "Every decoder gets its records cut at each byte, changed at each byte behind a right checksum, and made up. It refuses what is wrong, takes nothing for empty, and allocates no more than the input accounts for.",
		claims: []claim{
			{boltPage, "A file that was cut off, torn or overwritten, or that has pages older than the rest, is refused with ipalloc.ErrCorrupt and never changed or taken as empty."},
			{boltPage, "bbolt protects its meta pages alone by a checksum."},
			{boltPage, "Here each record has one, over its key, revision and value, and each transaction writes the number of records and the sum of their checksums."},
			{boltPage, "Opening verifies all of that when [Verify] says so."},
			{boltPage, "Otherwise each read verifies the record it finds, and where it finds none, the records beside that place."},
			{boltPage, "A damaged record fails the calls that read it and no other."},
			{bitmapPage, "Only [Bitmap.UnmarshalBinary] returns errors."},
			{servicePage, "IPv4-mapped IPv6 addresses and zones are refused everywhere, and ::ffff:0:0/96 is never handed out."},
		},
		parts: []part{
			tests("bitmap", "TestHostileForms", "TestHostileFormsAllocateLittle"),
			tests("internal/snap", "TestDamage", "TestHostileBodies"),
			tests("cidrset", "TestRestoreTruncated"),
			tests("cidrset/nodeipam", "TestDamagedSnapshots", "TestRestoreOfHostileBodies"),
			tests("servicealloc", "TestRestoreHostile"),
			tests("selector", "TestEveryByte"),
			tests("ipset", "TestDamageOfEveryRecord", "TestDamageThatNothingPointsTo", "TestAnswerBytes"),
			tests("ipset/internal/record", "TestOwnerBytes"),
			tests("ipset/internal/block", "TestBlockDecodeRefusesDamage", "TestAddressDecodeRefusesDamage"),
			tests("ipset/prefixes", "TestDamageGivesNothingTwice", "TestFlippedBits"),
			tests("ipset/hostlocal", "TestHostileRecords", "TestHostileAttachmentKeys"),
			tests("ipset/store", "TestRestoreOfHostileBytes"),
			tests("ipset/boltstore", "TestTruncated", "TestTornPagesAfterKill", "TestFlippedKeys", "TestDamagedRecordIsAlone", "TestNewerMetaPageDamaged", "TestLostWrites"),
		},
	}
}

func costs() *proof {
	return &proof{
		id:     "costs",
		method: "Steps, allocations, bytes and round trips are counted, and are at most what the documents say, in empty, half full and full pools of all sizes. No time is measured.",
		claims: []claim{costIsFlat,
			{setPage, "Every method but the iterators, MarshalBinary and Check is O(log n) in the number of children, however full the set is."},
			{servicePage, "Allocation and release take O(log n) in the size of the range however full it is; statistics are O(1); memory follows what is taken."},
			{servicePage, "A full [Range] or [Ports] returns the same error each time, which costs no allocation."},
			{nodePage, "Allocate, Release, Occupy and Observe take O(log n) steps for a prefix, however full a pool is."},
			{bitmapPage, "Steady state does not allocate: up to 64 pages that became wholly clear or wholly set are kept for the next flip."},
			{bitmapPage, "A page takes 576 bytes (1.13 bits for each ordinal of a dense set; 1.25 with order summaries), an inner node 1,088 bytes."},
			{cniPage, "A call takes the same time however full the range is."},
		},
		parts: []part{
			{kind: once, dir: "bench", tests: []string{"TestGuardAllocations", "TestGuardMemory"}, full: true},
			{kind: once, dir: "bench", tests: []string{"TestGuardSteps"}, tags: "invariants"},
			{kind: once, dir: "bitmap", tests: []string{"TestStepsOfPoints", "TestStepsOfRanges", "TestStepsOfCuts", "TestStepsOfFits", "TestStepsOfFitsInFragments", "TestStepsOfBatches", "TestStepsOfIterators"}, tags: "invariants"},
			{kind: once, dir: "cidrset/nodeipam", tests: []string{"TestStepsGrowWithTheLogarithm", "TestStepsOfLoadingOnePrefix", "TestStepsOfLargeCalls"}, tags: "invariants"},
			tests("bitmap", "TestFlipsDoNotAllocate", "TestRangesOfEveryOrderDoNotAllocate", "TestNodesOfEveryLevelDoNotAllocate"),
			tests("cidrset", "TestNewIsSmall"),
			{kind: once, dir: "cidrset", tests: []string{"TestReleaseOfManyRunsIsLinear"}, tags: "invariants"},
			tests("ipset", "TestDryRunCost", "TestListsDoNotFollowThePools", "TestAffinityDoesNotDecay"),
			{kind: rounds, dir: "bench/torture/scale", tests: []string{"TestDaysCostTheSame"}, unit: "clusters of 100 nodes over 9 days", weight: 2, least: 3 * time.Second},
			tests("ipset/internal/block", "TestBlockRecordIsSmall"),
		},
	}
}

// machines is the whole suite under what finds other defects than itself.
func machines() *proof {
	return &proof{
		id:     "race",
		method: "The tests of every module that people install run under the race detector.",
		claims: []claim{
			{servicePage, "Every type has one mutex, all methods are safe for concurrent use, and no caller's code (a loop over All, a receiver of [OnChange], a clock) runs with it held."},
		},
		parts: []part{{kind: target, dir: ".", args: []string{"race"}, from: time.Hour}},
	}
}

func asserted() *proof {
	return &proof{
		id:     "assertions",
		method: "The full suite of the root module runs with every internal assertion compiled in: after each operation all derived state is recomputed and compared.",
		claims: []claim{neverTwice},
		parts:  []part{{kind: target, dir: ".", args: []string{"invariants-full"}, from: time.Hour}},
	}
}
