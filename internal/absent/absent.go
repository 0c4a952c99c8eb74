// Package absent recognises a missing argument of an interface type, such as a store whose Open failed.
package absent

import "reflect"

// Is reports whether v is nil or a nil pointer in an interface. A caller that drops the error of Open passes the latter.
func Is(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
