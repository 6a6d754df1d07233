// GEMMSIM_NARROWEST(function) names the version for the instruction set that every processor of this architecture has.
#pragma once

#if defined(GEMMSIM_NEON)
#define GEMMSIM_NARROWEST(function) function##_neon
#else
#define GEMMSIM_NARROWEST(function) function##_baseline
#endif
