package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Aligned lays rows out as a Markdown table, the first of them its head.
func Aligned(rows [][]string) []string {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, s := range row {
			width[i] = max(width[i], utf8.RuneCountInString(s))
		}
	}
	line := func(row []string) string {
		var b strings.Builder
		for i, s := range row {
			pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(s))
			if i == 0 {
				b.WriteString("| " + s + pad)
			} else {
				b.WriteString(" | " + pad + s)
			}
		}
		return b.String() + " |"
	}
	rule := "|" + strings.Repeat("-", width[0]+2)
	for _, w := range width[1:] {
		rule += "|" + strings.Repeat("-", w+1) + ":"
	}
	lines := []string{line(rows[0]), rule + "|"}
	for _, row := range rows[1:] {
		lines = append(lines, line(row))
	}
	return lines
}

func OrDash(ok bool, s string) string {
	if !ok {
		return "-"
	}
	return s
}

// Significant formats v with about three digits.
func Significant(v float64) string {
	if v == 0 {
		return "0"
	}
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'e', 2, 64), 64) // 0.9996 is 1.00
	digits := max(0, 2-int(math.Floor(math.Log10(math.Abs(v)))))
	return strconv.FormatFloat(v, 'f', min(digits, 3), 64)
}

// Duration formats nanoseconds.
func Duration(ns float64) string {
	return scaled(ns, "ns", "us", "ms", "s")
}

// scaled formats a value in the first unit, each a thousand of the one before, in which it is below 1,000.
func scaled(v float64, units ...string) string {
	for len(units) > 1 && v >= 999.5 {
		v, units = v/1e3, units[1:]
	}
	return Significant(v) + " " + units[0]
}

// Size formats bytes.
func Size(v float64) string {
	return scaled(v, "B", "kB", "MB", "GB")
}

// Whole formats a count of things.
func Whole(v float64) string { return grouped(fmt.Sprintf("%.0f", v)) }

// Count formats bytes or allocations of an operation. The few objects that the measurement itself allocates in
// a window are not shown.
func Count(v float64) string {
	if v < 0.005 {
		return "0"
	}
	if v >= 1000 {
		return Whole(v)
	}
	return Significant(v)
}

// Times formats a ratio.
func Times(v float64) string {
	if v >= 1000 {
		return Whole(v) + "x"
	}
	return Significant(v) + "x"
}

// grouped puts commas into a number.
func grouped(s string) string {
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
