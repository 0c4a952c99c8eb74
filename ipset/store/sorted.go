package store

import (
	"sort"
)

// sorted is the memory store's table: records in key order, in chunks of up to chunkMax, the chunks in one slice.
//
// Two levels are enough: a chunk is found by binary search over the first keys, and inserting moves records of one chunk
// only. The slice of chunks is moved when one splits or empties, which takes at least 32 insertions or removals.
//
// Invariants: no chunk is empty; keys ascend inside a chunk and from chunk to chunk; firsts[i] is chunks[i][0].Key.
type sorted struct {
	firsts []string
	chunks [][]Record
	n      int
}

// chunkMax is the size at which a chunk is split in two halves; chunkFill is how far bulk loading fills one, which
// leaves room to insert before the first split.
const (
	chunkMax  = 256
	chunkFill = 224
)

// seek returns the position of the first record with a key not below key: chunk and index in it. At the end
// the chunk is len(chunks).
func (s *sorted) seek(key string) (c, i int) {
	c = sort.Search(len(s.firsts), func(j int) bool { return s.firsts[j] > key })
	if c == 0 {
		return 0, 0
	}
	c--
	chunk := s.chunks[c]
	lo, hi := 0, len(chunk)
	for lo < hi {
		if m := int(uint(lo+hi) >> 1); chunk[m].Key < key {
			lo = m + 1
		} else {
			hi = m
		}
	}
	if lo == len(chunk) {
		return c + 1, 0
	}
	return c, lo
}

// get returns the record of key, or nil. The pointer is good until the next put or delete.
func (s *sorted) get(key string) *Record {
	c, i := s.seek(key)
	if c == len(s.chunks) || s.chunks[c][i].Key != key {
		return nil
	}
	return &s.chunks[c][i]
}

// put writes a record.
func (s *sorted) put(r Record) {
	c, i := s.seek(r.Key)
	if c < len(s.chunks) && s.chunks[c][i].Key == r.Key {
		s.chunks[c][i] = r
		return
	}
	s.n++
	switch {
	case len(s.chunks) == 0:
		s.chunks, s.firsts = append(s.chunks, append(make([]Record, 0, 4), r)), append(s.firsts, r.Key)
		return
	case i == 0 && c > 0:
		// Between two chunks: the end of the left one, so that ascending insertion fills chunks.
		c--
		i = len(s.chunks[c])
	}
	chunk := append(s.chunks[c], Record{})
	copy(chunk[i+1:], chunk[i:])
	chunk[i] = r
	s.chunks[c] = chunk
	s.firsts[c] = chunk[0].Key
	if len(chunk) > chunkMax {
		s.split(c, i == len(chunk)-1)
	}
}

// split divides chunk c. ascending says that the last insertion was at the end: then the left part stays full.
func (s *sorted) split(c int, ascending bool) {
	old := s.chunks[c]
	at := len(old) / 2
	if ascending {
		at = chunkFill
	}
	right := make([]Record, len(old)-at, chunkMax+1)
	copy(right, old[at:])
	clear(old[at:])
	s.chunks[c] = old[:at:cap(old)]
	s.chunks = append(s.chunks, nil)
	copy(s.chunks[c+2:], s.chunks[c+1:])
	s.chunks[c+1] = right
	s.firsts = append(s.firsts, "")
	copy(s.firsts[c+2:], s.firsts[c+1:])
	s.firsts[c+1] = right[0].Key
}

// delete removes the record of key and reports whether it existed. A chunk that became small is joined with its left
// neighbour, so that what was full once does not keep its memory.
func (s *sorted) delete(key string) bool {
	c, i := s.seek(key)
	if c == len(s.chunks) || s.chunks[c][i].Key != key {
		return false
	}
	s.n--
	chunk := s.chunks[c]
	copy(chunk[i:], chunk[i+1:])
	chunk[len(chunk)-1] = Record{}
	chunk = chunk[:len(chunk)-1]
	s.chunks[c] = chunk
	switch {
	case len(chunk) == 0:
		s.drop(c)
	case c > 0 && len(chunk)+len(s.chunks[c-1]) <= chunkMax/2:
		s.chunks[c-1] = append(s.chunks[c-1], chunk...)
		s.drop(c)
	default:
		s.firsts[c] = chunk[0].Key
	}
	return true
}

// drop takes chunk c out of the slice of chunks.
func (s *sorted) drop(c int) {
	copy(s.chunks[c:], s.chunks[c+1:])
	s.chunks[len(s.chunks)-1] = nil
	s.chunks = s.chunks[:len(s.chunks)-1]
	copy(s.firsts[c:], s.firsts[c+1:])
	s.firsts[len(s.firsts)-1] = ""
	s.firsts = s.firsts[:len(s.firsts)-1]
}

// appendLast adds a record whose key is above all others, filling chunks up to chunkFill.
func (s *sorted) appendLast(r Record) {
	s.n++
	c := len(s.chunks) - 1
	if c < 0 || len(s.chunks[c]) >= chunkFill {
		s.chunks = append(s.chunks, make([]Record, 0, chunkFill))
		s.firsts = append(s.firsts, r.Key)
		c++
	}
	s.chunks[c] = append(s.chunks[c], r)
}

// scan appends the records of r to dst.
func (s *sorted) scan(dst []Record, r Range) []Record {
	limit := r.Limit
	if limit <= 0 {
		limit = s.n
	}
	if !r.Reverse {
		for c, i := s.seek(r.From); c < len(s.chunks) && limit > 0; c, i = c+1, 0 {
			for ; i < len(s.chunks[c]) && limit > 0; i++ {
				if r.To != "" && s.chunks[c][i].Key >= r.To {
					return dst
				}
				dst = append(dst, s.chunks[c][i])
				limit--
			}
		}
		return dst
	}
	c, i := len(s.chunks), 0
	if r.To != "" {
		c, i = s.seek(r.To)
	}
	for limit > 0 {
		if i--; i < 0 {
			if c--; c < 0 {
				return dst
			}
			i = len(s.chunks[c]) - 1
		}
		if s.chunks[c][i].Key < r.From {
			return dst
		}
		dst = append(dst, s.chunks[c][i])
		limit--
	}
	return dst
}
