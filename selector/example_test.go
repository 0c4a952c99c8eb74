package selector_test

import (
	"fmt"

	"github.com/ipalloc/ipalloc/selector"
)

func Example() {
	s, err := selector.Selector{
		selector.Term{Labels: []selector.Requirement{
			{Key: "zone", Op: selector.In, Values: []string{"a", "b"}},
			{Key: "gpus", Op: selector.Gt, Values: []string{"3"}},
		}},
		selector.Term{Fields: []selector.Requirement{
			{Key: selector.NameField, Op: selector.In, Values: []string{"bastion"}},
		}},
	}.Compile()
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s)
	n1 := map[string]string{"zone": "a", "gpus": "8", "os": "linux"}
	met, ok := s.Match("n1", n1)
	fmt.Println(met, ok, s.Labels("n1", n1))
	fmt.Println(s.Why("n2", map[string]string{"zone": "a", "gpus": "2"}))
	// Output:
	// gpus > 3, zone in (a,b) or field metadata.name in (bastion)
	// 2 true gpus=8,zone=a
	// gpus > 3, but gpus=2; or field metadata.name in (bastion), but metadata.name=n2
}
