// Package examples has programs that use the hardware of package hw. Those without hardware are in the folder
// examples of the repository.
package examples
