# From a Dump of go-ipam to CSV of ipamctl: its child prefixes, or with --arg take addresses the addresses. It fails on a second namespace.
def own: [(.Cidr | split("/")[0])]; # go-ipam holds the network address of each prefix itself
if (map(.Namespace) | unique | length) > 1 then error("several namespaces: select(.Namespace == ...) each into a space of its own") else . end
| if map(keys - ["Cidr","ParentCidr","Namespace","AvailableChildPrefixes","ChildPrefixLength","IsParent","IPs","Version"]) | add != [] then error("unknown fields") else . end
| if $take == "addresses" then
    ["address"], (.[] | select(.IsParent | not) | .Cidr as $in | (.IPs // {}) | to_entries[] | select(.value) | .key
      | select(. != ($in | split("/")[0])) | [.])
  else
    ["prefix", "pool", "owner"], (.[] | select(.ParentCidr != "") | [.Cidr, .ParentCidr, "go-ipam"])
  end
| @csv
