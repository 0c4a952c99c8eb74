package alloc

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/ipalloc/ipalloc"
	"github.com/ipalloc/ipalloc/internal/wire"
	"github.com/ipalloc/ipalloc/ipset/internal/cause"
	"github.com/ipalloc/ipalloc/ipset/internal/holder"
)

// The text and JSON forms contain all of a value, in a readable form. Names and values
// may be any bytes, which JSON cannot express. A text that is not UTF-8 is quoted as in
// Go, and attributes with such bytes are base64.

// nameOf returns the name of v, or for an unknown value the kind in what, with the
// number.
func nameOf[T ~uint8](names []string, what string, v T) string {
	if int(v) < len(names) {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, v)
}

// writeName is MarshalText of a value with a name.
func writeName[T ~uint8](names []string, what string, v T) ([]byte, error) {
	if int(v) >= len(names) {
		return nil, cause.Wrap(ipalloc.Error{Op: "write", Field: what, Text: nameOf(names, what, v), Err: ipalloc.ErrInvalid})
	}
	return []byte(names[v]), nil
}

// readName is UnmarshalText of a value with a name.
func readName[T ~uint8](names []string, what string, v *T, text []byte) error {
	i := slices.Index(names, string(text))
	if i < 0 {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: what, Text: string(text), Err: ipalloc.ErrInvalid})
	}
	*v = T(i)
	return nil
}

// useNames are the texts of the uses, lowest bit first.
var useNames = [...]string{"workload", "tunnel", "loadbalancer"}

// String returns the names of the uses, such as "workload,tunnel".
func (u Use) String() string {
	names, _ := u.names(make([]string, 0, len(useNames)+1))
	return strings.Join(names, ",")
}

// names appends the names of the uses. ok is false if a use has no name.
func (u Use) names(names []string) (_ []string, ok bool) {
	for i, name := range useNames {
		if u&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	if rest := u >> len(useNames) << len(useNames); rest != 0 {
		return append(names, fmt.Sprintf("use %d", uint8(rest))), false
	}
	return names, true
}

// MarshalJSON writes the names of the uses as a list. It fails with [ipalloc.ErrInvalid]
// for an unknown use.
func (u Use) MarshalJSON() ([]byte, error) {
	names, ok := u.names([]string{})
	if !ok {
		return nil, cause.Wrap(ipalloc.Error{Op: "write", Field: "use", Text: u.String(), Err: ipalloc.ErrInvalid})
	}
	return json.Marshal(names)
}

// UnmarshalJSON reads the form of MarshalJSON. It fails with [ipalloc.ErrInvalid] for
// anything else.
func (u *Use) UnmarshalJSON(text []byte) error {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: "use", Text: string(text), Err: ipalloc.ErrInvalid})
	}
	var all Use
	for _, name := range names {
		i := slices.Index(useNames[:], name)
		if i < 0 {
			return cause.Wrap(ipalloc.Error{Op: "read", Field: "use", Text: name, Err: ipalloc.ErrInvalid})
		}
		all |= 1 << i
	}
	*u = all
	return nil
}

// MarshalText returns the text of String, but quotes a name that is not UTF-8 or begins
// with a quote. It fails with [ipalloc.ErrInvalid] for an unknown kind.
func (o Owner) MarshalText() ([]byte, error) {
	if o != (Owner{}) && o.Check() != nil {
		return nil, cause.Wrap(ipalloc.Error{Op: "write", Field: "owner", Text: fmt.Sprintf("%d:%s", o.Kind, o.Name), Err: ipalloc.ErrInvalid})
	}
	o.Name = quote(o.Name)
	return []byte(o.String()), nil
}

// UnmarshalText reads the text of MarshalText. It fails with [ipalloc.ErrInvalid] for any
// other text.
func (o *Owner) UnmarshalText(text []byte) error {
	read, err := ParseOwner(string(text))
	if err != nil {
		return err
	}
	if read.Name, err = unquote(read.Name); err != nil {
		return err
	}
	*o = read
	return nil
}

// quote returns a text that JSON preserves: it quotes s if s is not UTF-8, or would be
// read as a quoted text.
func quote(s string) string {
	if !utf8.ValidString(s) || strings.HasPrefix(s, `"`) {
		return strconv.Quote(s)
	}
	return s
}

// unquote is the inverse of quote.
func unquote(s string) (string, error) {
	if !strings.HasPrefix(s, `"`) {
		return s, nil
	}
	text, err := strconv.Unquote(s)
	if err != nil {
		return "", cause.Wrap(ipalloc.Error{Op: "read", Field: "text", Text: s, Err: ipalloc.ErrInvalid})
	}
	return text, nil
}

// String returns the attributes as quoted keys and values, keys ascending: "app"="web" "zone"="a".
func (a Attributes) String() string {
	var pairs []string
	for k, v := range a.All() {
		pairs = append(pairs, strconv.Quote(k)+"="+strconv.Quote(v))
	}
	return strings.Join(pairs, " ")
}

// MarshalJSON writes an object of strings, or a string of base64 if a key or a value is not UTF-8.
func (a Attributes) MarshalJSON() ([]byte, error) {
	all := a.Map()
	for k, v := range all {
		if !utf8.ValidString(k) || !utf8.ValidString(v) {
			return json.Marshal([]byte(holder.Attributes(a).Code()))
		}
	}
	if all == nil {
		return []byte("{}"), nil
	}
	return json.Marshal(all)
}

// UnmarshalJSON reads the form of MarshalJSON. It fails with [ipalloc.ErrLimit] for more
// than 64 KiB, and with [ipalloc.ErrInvalid] for anything else.
func (a *Attributes) UnmarshalJSON(text []byte) error {
	var all map[string]string
	if err := json.Unmarshal(text, &all); err == nil {
		read, err := NewAttributes(all)
		if err == nil {
			*a = read
		}
		return err
	}
	var code []byte
	if err := json.Unmarshal(text, &code); err != nil || len(code) == 0 || !holder.AttributesOf(string(code)).Valid() {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: "attributes", Text: string(text[:min(len(text), 64)]), Err: ipalloc.ErrInvalid})
	}
	*a = Attributes(holder.AttributesOf(string(code)))
	return nil
}

// allocationForm is an allocation in JSON. Share is the coded share with all holders,
// because no other form preserves all of it.
type allocationForm struct {
	Address    netip.Addr   `json:"address"`
	Block      netip.Prefix `json:"block"`
	Host       Owner        `json:"host"`
	Handle     string       `json:"handle,omitempty"`
	Attributes Attributes   `json:"attributes,omitzero"`
	Alternate  Attributes   `json:"alternate,omitzero"`
	Seq        uint64       `json:"seq"`
	Since      time.Time    `json:"since,omitzero"`
	Until      time.Time    `json:"until,omitzero"`
	Cooling    bool         `json:"cooling,omitempty"`
	Share      string       `json:"share,omitempty"`
}

// String returns the names and values of all fields, as %+v prints a struct. It quotes the
// coded holders of a shared address; [Allocation.Holders] returns them.
func (a Allocation) String() string {
	type fields Allocation
	if a.shared != "" {
		a.shared = strconv.Quote(a.shared)
	}
	return fmt.Sprintf("%+v", fields(a))
}

// MarshalJSON writes the whole allocation. Share and holders are one base64 string, which
// [Allocation.Holders] decodes.
func (a Allocation) MarshalJSON() ([]byte, error) {
	return json.Marshal(allocationForm{
		a.Address, a.Block, a.Host, quote(a.Handle), a.Attributes, a.Alternate, a.Seq, a.Since, a.Until, a.Cooling, base64.StdEncoding.EncodeToString([]byte(a.shared)),
	})
}

// UnmarshalJSON reads the form of MarshalJSON. It fails with [ipalloc.ErrInvalid] for an
// impossible allocation.
func (a *Allocation) UnmarshalJSON(text []byte) error {
	fail := func(err error) error {
		return cause.Wrap(ipalloc.Error{Op: "read", Field: "allocation", Reason: err.Error(), Err: ipalloc.ErrInvalid})
	}
	var f allocationForm
	if err := json.Unmarshal(text, &f); err != nil {
		return fail(err)
	}
	handle, err := unquote(f.Handle)
	if err != nil {
		return err
	}
	shared, err := base64.StdEncoding.DecodeString(f.Share)
	if err != nil {
		return fail(err)
	}
	if len(shared) > 0 {
		if err := checkShared(string(shared)); err != nil {
			return fail(err)
		}
	}
	*a = Allocation{f.Address, f.Block, f.Host, handle, f.Attributes, f.Alternate, f.Seq, f.Since, f.Until, f.Cooling, Owner{}, string(shared)}
	return nil
}

// checkShared refuses a code that [Allocation.Holders] could not decode to its end.
func checkShared(code string) error {
	most, key, rest := holder.Share(code)
	if err := (Share{most, key}).Check(); err != nil || most == 0 {
		return errors.Join(errors.New("not a share"), err)
	}
	handles, last, c := map[string]bool{}, uint64(0), wire.Read(rest)
	for c.S != "" {
		var h Allocation
		if !h.hold(c) || h.Handle == "" || handles[h.Handle] || h.Seq <= last || len(handles) == most {
			return errors.New("not a holder")
		}
		handles[h.Handle], last = true, h.Seq
	}
	return nil
}
