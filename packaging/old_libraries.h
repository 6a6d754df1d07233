// Included first in every C++ file of a wheel: keeps the library from asking for newer C and C++ libraries than
// manylinux_2_28 has.
#pragma once
#if defined(__gnu_linux__) && defined(__x86_64__)
// glibc 2.29 changed how these report errors, not what they return.
__asm__(".symver exp,exp@GLIBC_2.2.5");
__asm__(".symver log2,log2@GLIBC_2.2.5");
#elif defined(__gnu_linux__) && defined(__aarch64__)
__asm__(".symver exp,exp@GLIBC_2.17");
__asm__(".symver log2,log2@GLIBC_2.17");
#endif
#if defined(__GNUC__) && !defined(__clang__)
namespace std {
// std::vector of GCC 11 and later calls this function for sizes beyond all memory; older libraries do not have it.
__attribute__((noreturn, visibility("hidden"))) inline void __throw_bad_array_new_length() { __builtin_abort(); }
}  // namespace std
#endif
