#!/bin/sh
# Writes names.txt and settings.txt: the public names of the Rust crates nexar, nexar-rdma and nexar-nccl, and the variables of nexar
# with their fields and defaults. It needs a nightly toolchain of Rust, jq and awk. Run it here: ./generate.sh VERSION
set -eu
version=$1
here=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir src
echo 'fn main() {}' >src/main.rs
cat >Cargo.toml <<END
[package]
name = "names"
version = "0.0.0"
edition = "2024"

[dependencies]
nexar = "=$version"
nexar-rdma = "=$version"
nexar-nccl = "=$version"
END
cargo fetch
source=$(echo "${CARGO_HOME:-$HOME/.cargo}"/registry/src/*/nexar-"$version")
registry=$(dirname "$source")

# nexar: the names that rustdoc shows, and the public members of its types.
cargo +nightly rustdoc -p nexar --lib --output-format json -Zunstable-options
cat >names.jq <<'END'
.index as $index
| def item: $index[tostring];
  def members:
    if .inner.trait then .inner.trait.items[] | item
    elif .inner.struct or .inner.enum then
      (.inner.struct // .inner.enum)
      | (.kind? | objects | .plain.fields[]), (.variants // [])[],
        (.impls[] | item | .inner.impl | select(.trait == null) | .items[])
      | item | select(.visibility == "public" or .inner.variant)
    else empty end;
  def names($name):
    if . == null then empty
    elif .inner.module then .inner.module.items[] | item | names(null)
    elif .inner.use then (.inner.use.name as $alias | .inner.use.id | item | names($alias))
    else ($name // .name) as $n | $n, (members | "\($n)::\(.name)") end;
  .root | item | names(null)
END
jq -rf names.jq "${CARGO_TARGET_DIR:-target}"/doc/nexar.json >names

# The other crates need libraries of the hardware, so their names come from the source.
for crate in nexar-rdma nexar-nccl; do
	find "$registry/$crate-$version/src" -name '*.rs' ! -name ibverbs_sys.rs -exec awk -v crate="$(echo $crate | tr - _)" '
		FNR == 1 { owner = ""; skip = 0 }
		/^#\[cfg\(test\)\]/ { skip = 1 }
		skip { next }
		match($0, /^ *(pub )?(impl|trait)(<[^>]*>)? [A-Za-z]+/) {
			owner = substr($0, RSTART, RLENGTH); sub(/.* /, "", owner)
			public = / trait /; indent = match($0, /[^ ]/)
			if (/ for /) owner = ""
			if (public) print crate "::" owner
			next
		}
		owner != "" && match($0, /[^ ]/) == indent && /^ *}/ { owner = ""; next }
		match($0, /^ *pub (async |unsafe |const )*(fn|struct|enum) [A-Za-z_]+/) || (owner != "" && public && match($0, /^ *(async |unsafe )*fn [a-z_]+/)) {
			name = substr($0, RSTART, RLENGTH); sub(/.* /, "", name)
			print crate "::" (owner != "" ? owner "::" : "") name
		}' {} + >>names
done
LC_ALL=C sort -u names >"$here/names.txt"

# The variables that NexarConfig::from_env reads, their fields, and the expressions of NexarConfig::default.
awk '
	/^ *#\[default\]/ { getline; first = $1; sub(/,/, "", first) }
	/const CLUSTER_TOKEN_ENV/ { token = expression($0, "= "); gsub(/"/, "", token); print token, "cluster_token", "None" }
	/^const|^pub const/ { name = $3; sub(/:/, "", name); value[name] = expression($0, "= ") }
	/^impl Default for NexarConfig/ { defaults = 1 }
	/^}/ { defaults = 0 }
	defaults && /^            [a-z_]+: / { name = $1; sub(/:/, "", name); value[name] = expression($0, ": ") }
	match($0, /var\("NEXAR_[A-Z_]+/) { variable = substr($0, RSTART + 5, RLENGTH - 5) }
	variable != "" && match($0, /cfg\.[a-z_]+ = /) {
		name = substr($0, RSTART + 4, RLENGTH - 7); v = value[name]; sub(/.*::/, "", v)
		if (v == "default()") v = first # the variant of the enumeration in sparse.rs, the only one with a default
		print variable, name, (v in value ? value[v] : v)
		variable = ""
	}
	function expression(line, after) {
		sub(/ *\/\/.*/, "", line); sub(/[,;]$/, "", line); line = substr(line, index(line, after) + length(after))
		if (line ~ /from_secs/) { gsub(/.*\(|\)/, "", line); return line "s" }
		if (sub(/ \* 1024 \* 1024 \* 1024$/, "", line)) return line " GiB"
		if (sub(/ \* 1024 \* 1024$/, "", line)) return line " MiB"
		return line
	}' "$source/src/cluster/sparse.rs" "$source/src/cluster/cluster_config.rs" "$source/src/transport/router.rs" "$source/src/config.rs" | LC_ALL=C sort >"$here/settings.txt"
