//go:build !race

package plan

// everySize is up to where the tests prove every size, largeSizes are the
// samples beyond. Mutants are made of plans of mutantSizes.
const everySize = 130

var (
	largeSizes  = [...]int{131, 257, 1000}
	mutantSizes = [...]int{1, 2, 3, 4, 5, 6, 7, 8}
)
