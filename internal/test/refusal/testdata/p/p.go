package p

type T struct{}
type G[K any] struct{}
type hidden struct{}

func New() (*T, error)       { return nil, nil }
func (*T) Do() error         { return nil }
func (*T) Count() int        { return 0 }
func (*T) do() error         { return nil }
func (*G[K]) Do() (K, error) { panic("") }
func (hidden) Do() error     { return nil }
