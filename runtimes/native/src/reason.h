/* Why a system call failed, in the words that every other part of the product has for it. */
#ifndef REASON_H
#define REASON_H

const char *reason_of(int number);

#endif
