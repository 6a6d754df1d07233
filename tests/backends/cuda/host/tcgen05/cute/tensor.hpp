#include "../machine.h"
