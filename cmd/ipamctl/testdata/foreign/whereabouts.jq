# From kubectl get ippools.whereabouts.cni.cncf.io -A -o json to CSV of ipamctl. It fails on what CSV has no place for.
def stop(why): error("\(.metadata.namespace)/\(.metadata.name): \(why)");
def add(n): [., n] | (.[0] | split(".") | map(tonumber) | reduce .[] as $b (0; . * 256 + $b)) + .[1]
  | [. / 16777216, . / 65536, . / 256, .] | map(floor % 256 | tostring) | join(".");
if .metadata.continue // "" != "" then error("a page of a longer list") else . end
| [.items[] | .spec.range] as $ranges
| if ($ranges | unique | length) != ($ranges | length) then error("two networks of one range") else . end
| ["address", "handle", "attributes"], (.items[]
  | if .kind != "IPPool" or (.spec | keys - ["range", "allocations"]) != [] then stop("unknown fields") else . end
  | if (.spec.range | contains(":")) then stop("an IPv6 range; add its addresses by hand") else . end
  | (.spec.range | split("/")[0]) as $first
  | .spec.allocations // {} | to_entries[] | .key as $key | .value
  | if keys - ["id", "podref", "ifname"] != [] then error("an allocation with unknown fields: \(.)") else . end
  | [($first | add($key | tonumber)), ([.id, .ifname // empty] | join("/")), "pod=\(.podref)"])
| @csv
