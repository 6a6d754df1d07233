#include "../../machine.h"
