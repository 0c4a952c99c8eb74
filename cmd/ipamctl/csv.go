package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"go4.org/netipx"

	"github.com/ipalloc/ipalloc/ipset"
)

// CSV is read by programs that run what looks like a formula and pass control characters on to a terminal, and the names in it
// come from others. So a cell has an escape in place of each character that is not printable and of the backslash, as in Go, and
// a ' before what would be a formula. An import takes both away, so nothing is lost.

// csvCell writes a cell.
func csvCell(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r == '\\' || !unicode.IsPrint(r) }) {
		quoted := strconv.Quote(s)
		s = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	}
	if s != "" && strings.IndexByte("=+-@'", s[0]) >= 0 && !isNumber(strings.TrimPrefix(s, "-")) && s != "-" {
		return "'" + s
	}
	return s
}

// csvText reads a cell. One that is not of csvCell's form stands for itself, because people write such files, too.
func csvText(cell string) string {
	if rest, found := strings.CutPrefix(cell, "'"); found && rest != "" && strings.IndexByte("=+-@'", rest[0]) >= 0 {
		cell = rest
	}
	if strings.Contains(cell, `\`) {
		if text, err := strconv.Unquote(`"` + strings.ReplaceAll(cell, `"`, `\"`) + `"`); err == nil {
			return text
		}
	}
	return cell
}

func csvCells(cells []string) []string {
	out := make([]string, len(cells))
	for i, c := range cells {
		out[i] = csvCell(c)
	}
	return out
}

// csvColumns are the columns of addresses in CSV. A file of the first four has no details.
var csvColumns = []string{"address", "handle", "host", "attributes", "until", "alternate", "share", "shareKey", "cooling", "reason", "since"}

// writeCSV writes each address as it is read.
func writeCSV(ctx context.Context, e *ipset.Engine, to io.Writer, in netip.Prefix) error {
	w := csv.NewWriter(to)
	_ = w.Write(csvColumns)
	err := eachEntry(ctx, e, in, func(e addressEntry) error {
		cells := []string{e.Address, e.Handle, e.Host, csvAttributes(e.Attributes), e.Until, csvAttributes(e.Alternate), "", "", "", e.Reason, e.Since}
		if e.Share != nil {
			cells[6], cells[7] = strconv.Itoa(e.Share.Max), e.Share.Key
		}
		if e.Cooling {
			cells[8] = "true"
		}
		return w.Write(csvCells(cells))
	}, func(blockEntry) {})
	w.Flush()
	return cmp.Or(err, w.Error())
}

// csvAttributes writes attributes as k=v;k=v, or as JSON if one has a sign of that form in it.
func csvAttributes(m map[string]string) string {
	for k, v := range m {
		if strings.ContainsAny(k, `;={"`) || strings.ContainsAny(v, `;`) {
			text, err := json.Marshal(m)
			if err == nil {
				return string(text)
			}
		}
	}
	return strings.ReplaceAll(attributesText(m), ",", ";")
}

// parseAttributes reads what csvAttributes wrote.
func parseAttributes(text string) (m map[string]string, err error) {
	if strings.HasPrefix(text, "{") {
		return m, json.Unmarshal([]byte(text), &m)
	}
	for _, kv := range strings.Split(text, ";") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			if m == nil {
				m = map[string]string{}
			}
			m[k] = v
		}
	}
	return m, nil
}

func readCSV(text []byte) (*inventory, error) {
	inv := &inventory{lacks: lacks{noBlocks: true, noDetails: true, noPools: true}}
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	if first, _, _ := bytes.Cut(text, []byte("\n")); bytes.ContainsRune(first, ';') && !bytes.ContainsRune(first, ',') {
		r.Comma = ';'
	}
	columns := csvColumns[:4]
	lines := map[string]int{} // of addresses
	for n := 1; ; n++ {
		rec, err := r.Read()
		line, _ := 0, 0
		if err == nil {
			line, _ = r.FieldPos(0)
		}
		switch {
		case err == io.EOF && n == 1:
			return nil, fail(exitUsage, "the file is empty")
		case err == io.EOF:
			inv.settle()
			return inv, nil
		case err != nil:
			return nil, err
		}
		if n == 1 && slices.ContainsFunc(rec, func(c string) bool { return strings.EqualFold(strings.TrimSpace(c), "address") }) {
			if columns, err = csvHead(rec); err != nil {
				return nil, err
			}
			inv.columns, inv.noDetails = columns, !slices.Contains(columns, "until")
			inv.noHosts = !slices.Contains(columns, "host")
			continue
		}
		if len(rec) > len(columns) {
			return nil, fail(exitUsage, "line %d has %d cells, and there are %d columns", line, len(rec), len(columns))
		}
		e, err := csvEntry(columns, rec)
		if err == nil && e.Address == "" {
			err = fail(exitUsage, "no address")
		}
		if err != nil {
			return nil, fail(exitUsage, "line %d: %v", line, err)
		}
		if bits := strings.IndexByte(e.Address, '/'); bits >= 0 {
			inv.drop("prefix length")
			e.Address = e.Address[:bits]
		}
		if ip, err := parseAddr(e.Address); err != nil {
			return nil, fail(exitUsage, "line %d: %v", line, err)
		} else if e.Address = ip.String(); lines[e.Address] > 0 {
			inv.twice(e, lines[e.Address], line)
			continue
		}
		lines[e.Address] = line
		inv.Addresses = append(inv.Addresses, e)
	}
}

// csvHead reads the names of the columns.
func csvHead(cells []string) (columns []string, err error) {
	for _, c := range cells {
		i := slices.IndexFunc(csvColumns, func(name string) bool { return strings.EqualFold(strings.TrimSpace(c), name) })
		switch {
		case i < 0:
			return nil, fail(exitUsage, "line 1: there is no column %q; the columns are %s", c, strings.Join(csvColumns, ","))
		case slices.Contains(columns, csvColumns[i]):
			return nil, fail(exitUsage, "line 1: the column %q is there twice", c)
		}
		columns = append(columns, csvColumns[i])
	}
	return columns, nil
}

// twice adds another line of an address: one more holder if all of them share it, or else the only one if its time is later. If no time
// decides, the address is refused.
func (inv *inventory) twice(e addressEntry, first, line int) {
	same := func(x addressEntry) bool { return x.Address == e.Address }
	i := slices.IndexFunc(inv.Addresses, same)
	if i < 0 {
		return // it has been refused
	}
	switch is := inv.Addresses[i]; {
	case is.Share != nil && e.Share != nil && is.Handle != e.Handle:
		inv.Addresses = append(inv.Addresses, e)
	case is.Until != "" && e.Until != "" && is.Until != e.Until:
		if later(e.Until, is.Until) {
			inv.Addresses[i] = e
		}
	default:
		inv.Addresses = slices.DeleteFunc(inv.Addresses, same)
		at := netip.MustParseAddr(e.Address)
		inv.refuse(e.Address, netipx.IPRangeFrom(at, at), fail(exitConflict, "lines %d and %d are about it", first, line))
	}
}

// never is the end of a lease in a file that has no end.
const never = "never"

// later reports whether an end is after another one.
func later(x, y string) bool {
	if x == never || y == never {
		return x == never
	}
	t, terr := time.Parse(time.RFC3339Nano, x)
	u, uerr := time.Parse(time.RFC3339Nano, y)
	return terr == nil && uerr == nil && t.After(u)
}

// settle takes out the word for no end.
func (inv *inventory) settle() {
	for i := range inv.Addresses {
		if inv.Addresses[i].Until == never {
			inv.Addresses[i].Until = ""
		}
	}
}

// csvTime reads a time, or seconds since 1970, of which 0 and 2^32-1 mean never.
func csvTime(text string) (string, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n == 0 || n == math.MaxUint32 {
			return never, nil
		}
		return timeText(time.Unix(n, 0)), nil
	}
	if strings.EqualFold(text, never) {
		return never, nil
	}
	if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
		return "", fail(exitUsage, "%q is neither a time such as 2006-01-02T15:04:05Z nor seconds since 1970", text)
	}
	return text, nil
}

// csvEntry reads a line.
func csvEntry(columns, cells []string) (e addressEntry, err error) {
	share := func() *shareEntry {
		if e.Share == nil {
			e.Share = &shareEntry{}
		}
		return e.Share
	}
	for i, cell := range cells {
		text := csvText(cell)
		if text == "" {
			continue
		}
		switch columns[i] {
		case "address":
			e.Address = strings.TrimSpace(text)
		case "handle":
			e.Handle = text
		case "host":
			e.Host = text
		case "until":
			e.Until, err = csvTime(text)
		case "reason":
			e.Reason = text
		case "since":
			e.Since = text
		case "attributes":
			e.Attributes, err = parseAttributes(text)
		case "alternate":
			e.Alternate, err = parseAttributes(text)
		case "share":
			share().Max, err = strconv.Atoi(text)
		case "shareKey":
			share().Key = text
		case "cooling":
			e.Cooling, err = strconv.ParseBool(text)
		}
		if err != nil {
			return e, err
		}
	}
	return e, nil
}
