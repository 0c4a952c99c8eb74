package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"unicode"

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
	r := csv.NewReader(bytes.NewReader(text))
	r.FieldsPerRecord = -1
	columns := csvColumns[:4]
	for n := 1; ; n++ {
		rec, err := r.Read()
		if err == io.EOF {
			return inv, nil
		}
		if err != nil {
			return nil, err
		}
		if n == 1 && rec[0] == "address" {
			for _, c := range rec {
				if !slices.Contains(csvColumns, c) {
					return nil, fail(exitUsage, "there is no column %q; the columns are %s", c, strings.Join(csvColumns, ","))
				}
			}
			columns, inv.noDetails = rec, !slices.Contains(rec, "until")
			continue
		}
		if len(rec) > len(columns) {
			return nil, fail(exitUsage, "line %d has %d cells, and there are %d columns", n, len(rec), len(columns))
		}
		e, err := csvEntry(columns, rec)
		if err != nil {
			return nil, fail(exitUsage, "line %d: %v", n, err)
		}
		inv.Addresses = append(inv.Addresses, e)
	}
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
			e.Address = text
		case "handle":
			e.Handle = text
		case "host":
			e.Host = text
		case "until":
			e.Until = text
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
