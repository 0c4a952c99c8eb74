package ipset

import (
	"iter"
	"net/netip"

	"github.com/ipalloc/ipalloc/ipset/internal/assign"
	"github.com/ipalloc/ipalloc/ipset/internal/check"
	"github.com/ipalloc/ipalloc/ipset/internal/pool"
	"github.com/ipalloc/ipalloc/ipset/internal/query"
	"github.com/ipalloc/ipalloc/ipset/internal/record"
	"github.com/ipalloc/ipalloc/ipset/internal/release"
	"github.com/ipalloc/ipalloc/ipset/store"
)

// ClaimFailure is a block that could not be claimed, and why.
type ClaimFailure = release.ClaimFailure

// ReleaseArgs are the arguments of [Engine.Release].
type ReleaseArgs = release.ReleaseArgs

// AssignArgs are the arguments of [Engine.AutoAssign]. Zero fields mean the default.
type AssignArgs = assign.AssignArgs

// Reason says why a pool gave no more addresses.
type Reason = assign.Reason

// Full: every address is held.
const Full = assign.Full

// ReservedLeft: only reserved addresses are left.
const ReservedLeft = assign.ReservedLeft

// CoolingLeft: only cooling addresses are left.
const CoolingLeft = assign.CoolingLeft

// ForeignLeft: other owners have blocks with room, and strict affinity forbids borrowing from them.
const ForeignLeft = assign.ForeignLeft

// LimitReached: there are free blocks, and a limit or the configuration forbids claiming them.
const LimitReached = assign.LimitReached

// Fragmented: addresses are left, and not so many in a row as Contiguous asks for.
const Fragmented = assign.Fragmented

// TooSmall: no block of the pool has so many addresses in a row as Contiguous asks for.
const TooSmall = assign.TooSmall

// OutsideLeft: every address of the pool's ranges is held, and AssignIP alone gives the others.
const OutsideLeft = assign.OutsideLeft

// CommitFull: addresses are left, and one commit of the store takes no more.
const CommitFull = assign.CommitFull

// Shortage says why a pool did not give what was asked.
type Shortage = assign.Shortage

// Assigned is the result of [Engine.AutoAssign].
type Assigned = assign.Assigned

// AssignIPArgs are the arguments of [Engine.AssignIP].
type AssignIPArgs = assign.AssignIPArgs

// Borrowing is an address that is held for a host which did not own the block when it got the address.
type Borrowing = query.Borrowing

// ChangeKind says what a [Change] is.
type ChangeKind = query.ChangeKind

// AddressAssigned: the address is held; Is has the holder. Was is cooling if the address was. Of an address with several
// holders each has an AddressAssigned when it joins and an AddressReleased when it leaves; Seq tells them apart.
const AddressAssigned = query.AddressAssigned

// AddressReleased: the holder in Was does not hold the address any more. If no AddressAssigned of the same commit follows, and
// there is no other holder, the address is free.
const AddressReleased = query.AddressReleased

// AddressCooling: the address was released, or declined, and is free at Is.Until. Was has the holder before.
const AddressCooling = query.AddressCooling

// AddressCooled: the address is free. Was has the holder before.
const AddressCooled = query.AddressCooled

// LeaseChanged: the holder is the same, and the lease ends at another time: it was renewed.
const LeaseChanged = query.LeaseChanged

// AttributesChanged: the holder is the same, and its attributes are others.
const AttributesChanged = query.AttributesChanged

// HostChanged: the holder is the same, on another host.
const HostChanged = query.HostChanged

// BlockClaimed: Owner has the block. Former had it before, or is nobody.
const BlockClaimed = query.BlockClaimed

// BlockOrphaned: the block has no owner. Former had it before.
const BlockOrphaned = query.BlockOrphaned

// BlockReturned: the block does not exist any more. Former had it before.
const BlockReturned = query.BlockReturned

// PoolAdded, PoolChanged and PoolRemoved: Pool is the pool after the commit, FormerPool before it.
const PoolAdded = query.PoolAdded

const PoolChanged = query.PoolChanged

const PoolRemoved = query.PoolRemoved

// ReservationsChanged: Reserved are the reservations after the commit, FormerReserved before it.
const ReservationsChanged = query.ReservationsChanged

// ConfigChanged: Config is the configuration after the commit, FormerConfig before it.
const ConfigChanged = query.ConfigChanged

// Change is one thing that a commit changed. The fields that its Kind does not name are zero.
type Change = query.Change

// Commit is what one commit changed.
type Commit = query.Commit

// ProblemKind says what is wrong.
type ProblemKind = check.ProblemKind

const Damaged = check.Damaged

const Overlapping = check.Overlapping

const WrongSize = check.WrongSize

const NoPool = check.NoPool

const StrayAddress = check.StrayAddress

const LostAddress = check.LostAddress

const LostBlock = check.LostBlock

const StaleIndex = check.StaleIndex

const MissingIndex = check.MissingIndex

const WrongOwner = check.WrongOwner

const WrongPage = check.WrongPage

const OldGeneration = check.OldGeneration

const Unused = check.Unused

const NotHeld = check.NotHeld

const OtherHandle = check.OtherHandle

const UsedTwice = check.UsedTwice

const OutsideOfPool = check.OutsideOfPool

// Problem is one thing that [Check] found.
type Problem = check.Problem

// Report is what [Check] found and what would repair it.
type Report = check.Report

// InUse is one address that is in use, as far as the caller knows.
type InUse = check.InUse

// Check examines a snapshot of all records, in key order as [store.Store.List] returns them: that every record can be read,
// that blocks neither overlap nor lie where no pool made them, that every address record is what its block says, and that every
// index record, list of blocks and space page is what the blocks and addresses say. If uses is not nil it is compared with what
// is held. Neither a cooling address counts as unused nor one with a lease, which ends by itself unless its holder renews it.
//
// It is pure. The report's Repair can be read before it is given to [Engine.Repair]. It keeps some 200 bytes a block and, of
// what is in order, nothing for an address without uses and some 80 bytes with them; see [Engine.Check].
func Check(recs []store.Record, uses iter.Seq[InUse]) *Report { return check.Check(recs, uses) }

// Count is a number of addresses: Hi * 2^64 + Lo. Counts are comparable by ==. Text and JSON have it as a string of decimal
// digits, because many readers of JSON round numbers above 2^53.
type Count = query.Count

// SetOwnerArgs are the arguments of [Engine.SetAttributes].
type SetOwnerArgs = release.SetOwnerArgs

// Liveness says whether an allocation is in use, as far as the caller knows.
type Liveness = release.Liveness

// Alive means that it is in use, or that the caller cannot tell.
const Alive = release.Alive

// Leaked means that it is not in use. It is released once that has held for the whole grace period.
const Leaked = release.Leaked

// Gone means that what used it no longer exists. It is released at once.
const Gone = release.Gone

// Collector finds addresses that are held but not in use, and releases them. An address is a candidate when it is
// first seen leaked, and confirmed when it has been so for the grace period; once it is seen alive, the period begins again. The
// addresses of a handle go together or not at all. Those without handle are never touched.
//
// A Collector remembers only candidates. It is not safe for concurrent use.
type Collector = release.Collector

// DeclineArgs are the arguments of [Engine.Decline].
type DeclineArgs = release.DeclineArgs

// StartOf returns the block of a pool at which the searches of an owner begin. The owner's name fixes it, so hosts that start
// at the same time search in different places, and a host that returns searches where it was before. size is the
// prefix length of the pool's blocks, from that of the pool on.
func StartOf(o Owner, pool netip.Prefix, size int) netip.Prefix { return record.StartOf(o, pool, size) }

// Use is what an address is for; a set of bits in a [Pool].
type Use = pool.Use

// Workload addresses go to pods, containers and virtual machines.
const Workload = pool.Workload

// Tunnel addresses go to the tunnel devices of hosts.
const Tunnel = pool.Tunnel

// LoadBalancer addresses go to services.
const LoadBalancer = pool.LoadBalancer

// Pool is a prefix that is divided into blocks. A zero field selects the default that its comment names.
//
// A pool may lie in another one, to any depth. Each address belongs to the smallest pool around it, whether or not that pool is
// enabled, so settings and limits of the outer pool do not apply to it. A nested prefix is made of whole blocks of the pool around it.
type Pool = pool.Pool

// Config applies to all pools. The zero value is the default.
type Config = pool.Config

// Release names an address to release.
type Release = release.Release

// ReleaseResult is the outcome for one address.
type ReleaseResult = release.ReleaseResult

// Step is one commit of a repair: it restores derived records, or releases addresses.
type Step = check.Step

// HostReport is what one owner has.
type HostReport = query.HostReport

// BlockLimit is a limit of blocks and how many of them an owner has.
type BlockLimit = query.BlockLimit

// SweepArgs says what [Engine.Sweep] returns and forgets. Blocks are returned only as the fields say. Request keys and sticky
// handles have a default age, because without one they would accumulate.
type SweepArgs = release.SweepArgs

// Swept reports what a sweep did.
type Swept = release.Swept

// Utilization counts the addresses of a pool or a block by state. Capacity = Used + Cooling + Reserved + Available for a block;
// of a pool, too, with the addresses in no block among Available or Reserved. A pool does not count the addresses of the pools that
// lie in it, so that the sum over all pools counts every address once.
type Utilization = query.Utilization
