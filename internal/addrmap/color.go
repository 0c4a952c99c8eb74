package addrmap

import "fmt"

// rgb is a colour.
type rgb [3]uint8

func hex(v uint32) rgb { return rgb{uint8(v >> 16), uint8(v >> 8), uint8(v)} }

// String returns the colour as SVG writes it.
func (c rgb) String() string { return fmt.Sprintf("#%02x%02x%02x", c[0], c[1], c[2]) }

// fade mixes c with another colour, of which 1-share is left.
func (c rgb) fade(from rgb, share float64) (out rgb) {
	for i := range c {
		out[i] = uint8(float64(from[i]) + share*(float64(c[i])-float64(from[i])) + 0.5)
	}
	return out
}

// The colours are those of Okabe and Ito, which people tell apart who do not see red or green. The eighths
// of used cells are shades of one blue whose brightness falls, on a dark ground rises, with each step.
var (
	lightFree, darkFree = hex(0xf2f2f2), hex(0x26292e)
	lightIdle, darkIdle = hex(0xdbe4ea), hex(0x39434b)
	lightUsed, darkUsed = [2]rgb{hex(0xa6d4f2), hex(0x003f6b)}, [2]rgb{hex(0x1f4f73), hex(0xbfe4ff)}

	stateColors = [states]rgb{
		Reserved: hex(0x999999), Cooling: hex(0x009e73), Borrowed: hex(0xe69f00), Orphan: hex(0xcc79a7), Leaked: hex(0xd55e00),
		Same: hex(0x7f9db3), Added: hex(0x009e73), Removed: hex(0xd55e00), Changed: hex(0xe69f00),
	}
	classColors = [maxClasses + 1]rgb{hex(0x0072b2), hex(0xe69f00), hex(0x009e73), hex(0xcc79a7), hex(0x56b4e9), hex(0xd55e00),
		hex(0xf0e442), hex(0x7b52a3), hex(0x8c8c8c)}
)

// stateColor returns the colour of a cell.
func stateColor(st State, level int, dark bool) rgb {
	free, idle, used := lightFree, lightIdle, lightUsed
	if dark {
		free, idle, used = darkFree, darkIdle, darkUsed
	}
	switch st {
	case Free:
		return free
	case Idle:
		return idle
	case Used:
		return used[1].fade(used[0], float64(level-1)/7)
	}
	if st.urgency() > 0 || level == 8 {
		return stateColors[st]
	}
	return stateColors[st].fade(free, ink(level))
}

// ink is how much of its colour a cell has of which some eighths are taken: what is painted of a picture is what is taken.
func ink(level int) float64 { return float64(max(level, 2)) / 8 }
