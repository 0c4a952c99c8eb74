package journal

import (
	"encoding/json"
	"unicode/utf8"
)

// text is a string of any bytes in JSON, which knows UTF-8 alone: a plain string, or {"bytes": base64} for any other.
type text string

type anyBytes struct {
	Bytes []byte `json:"bytes"`
}

// MarshalJSON implements json.Marshaler.
func (s text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(s)) {
		return json.Marshal(string(s))
	}
	return json.Marshal(anyBytes{[]byte(s)})
}

// UnmarshalJSON implements json.Unmarshaler.
func (s *text) UnmarshalJSON(data []byte) error {
	if len(data) > 0 && data[0] == '{' {
		var b anyBytes
		err := json.Unmarshal(data, &b)
		*s = text(b.Bytes)
		return err
	}
	return json.Unmarshal(data, (*string)(s))
}
