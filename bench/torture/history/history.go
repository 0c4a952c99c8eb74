package history

import (
	"errors"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// Kind is the kind of an operation.
type Kind uint8

const (
	// Assign: the address was free and is held by the handle.
	Assign Kind = iota
	// Occupied: the address was held, by whomever.
	Occupied
	// Release: the address was held by the handle and is free.
	Release
	// Full: no address was free.
	Full
	// Ensure: the handle held the address, or held nothing and the address was free. Now it holds the address for the host.
	Ensure
	// Nothing: the handle held nothing for the host.
	Nothing
)

func (k Kind) String() string {
	return [...]string{"assign", "occupied", "release", "full", "ensure", "nothing"}[min(k, Nothing)]
}

// Step is one operation with its answer. Call and Return are times on one clock. A Release without a host is one of any host.
type Step struct {
	Client       int
	Kind         Kind
	Address      netip.Addr
	Handle, Host string
	Call, Return int64
}

// ErrNotLinearizable says that no order of the operations explains the answers.
var ErrNotLinearizable = errors.New("history: not linearizable")

// ErrUndecided means that the checker did not finish in time.
var ErrUndecided = errors.New("history: not decided in time")

// Check looks for an order of the operations on each address, and of those on each handle. It returns ErrNotLinearizable, naming an
// address or a handle, or ErrUndecided. Steps that are Full are not looked at.
func Check(steps []Step, limit time.Duration) error {
	byAddress, byHandle := make(map[netip.Addr][]porcupine.Operation), make(map[string][]porcupine.Operation)
	for _, s := range steps {
		if s.Kind != Full && s.Kind != Nothing {
			byAddress[s.Address] = append(byAddress[s.Address], operation(s))
		}
		if s.Kind != Full && s.Kind != Occupied {
			byHandle[s.Handle] = append(byHandle[s.Handle], operation(s))
		}
	}
	end := time.Now().Add(limit)
	for h, ops := range byHandle {
		if err := check(handleModel, ops, time.Until(end)); err != nil {
			return fmt.Errorf("%w: %s, %d operations: %s", err, h, len(ops), show(ops))
		}
	}
	for a, ops := range byAddress {
		if err := check(addressModel, ops, time.Until(end)); err != nil {
			return fmt.Errorf("%w: %s, %d operations: %s", err, a, len(ops), show(ops))
		}
	}
	return nil
}

// CheckPool looks for an order of all operations on a pool of at most 64 addresses, all of them assignable.
func CheckPool(steps []Step, pool netip.Prefix, limit time.Duration) error {
	var ops []porcupine.Operation
	for _, s := range steps {
		ops = append(ops, operation(s))
	}
	return check(poolModel(pool), ops, limit)
}

func operation(s Step) porcupine.Operation {
	return porcupine.Operation{ClientId: s.Client, Input: s, Call: s.Call, Output: s, Return: s.Return}
}

func check(m porcupine.Model, ops []porcupine.Operation, limit time.Duration) error {
	switch porcupine.CheckOperationsTimeout(m, ops, max(limit, time.Nanosecond)) {
	case porcupine.Illegal:
		return ErrNotLinearizable
	case porcupine.Unknown:
		return ErrUndecided
	}
	return nil
}

// addressModel is one address: the handle that holds it, or nobody.
var addressModel = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, _, output any) (bool, any) {
		holder, s := state.(string), output.(Step)
		switch s.Kind {
		case Assign:
			return holder == "", s.Handle
		case Ensure:
			return holder == "" || holder == s.Handle, s.Handle
		case Occupied:
			return holder != "", holder
		}
		return holder == s.Handle, ""
	},
}

// holding is what a handle holds, for a host: the zero one is nothing.
type holding struct {
	address netip.Addr
	host    string
}

// handleModel is one handle, which holds one address or nothing.
var handleModel = porcupine.Model{
	Init: func() any { return holding{} },
	Step: func(state, _, output any) (bool, any) {
		held, s := state.(holding), output.(Step)
		is := holding{s.Address, s.Host}
		switch s.Kind {
		case Assign:
			return held == holding{}, is
		case Ensure:
			return held == holding{} || held.address == s.Address, is
		case Nothing:
			return held == holding{} || s.Host != "" && held.host != s.Host, held
		}
		return held == is || s.Host == "" && held.address == s.Address, holding{}
	},
}

// poolModel is a set of addresses.
func poolModel(pool netip.Prefix) porcupine.Model {
	size := 1 << (pool.Addr().BitLen() - pool.Bits())
	return porcupine.Model{
		Init: func() any { return uint64(0) },
		Step: func(state, _, output any) (bool, any) {
			held, s := state.(uint64), output.(Step)
			switch s.Kind {
			case Full:
				return bits.OnesCount64(held) == size, held
			case Nothing:
				return true, held
			}
			raw := s.Address.As16()
			bit := uint64(1) << (int(raw[15]) % size)
			switch s.Kind {
			case Assign:
				return held&bit == 0, held | bit
			case Ensure:
				return true, held | bit
			case Occupied:
				return held&bit != 0, held
			}
			return held&bit != 0, held &^ bit
		},
	}
}

// show lists the first operations in the order of their calls.
func show(ops []porcupine.Operation) string {
	slices.SortFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	text := ""
	for _, op := range ops[:min(len(ops), 20)] {
		s := op.Output.(Step)
		text += fmt.Sprintf("\n  %d..%d client %d: %s %s %s %s", s.Call, s.Return, s.Client, s.Kind, s.Address, s.Handle, s.Host)
	}
	return text
}

// Held returns the addresses that must be held in the end.
func Held(steps []Step) map[netip.Addr]string {
	released := make(map[string]bool)
	for _, s := range steps {
		if s.Kind == Release {
			released[s.Handle] = true
		}
	}
	held := make(map[netip.Addr]string)
	for _, s := range steps {
		if (s.Kind == Assign || s.Kind == Ensure) && !released[s.Handle] {
			held[s.Address] = s.Handle
		}
	}
	return held
}
