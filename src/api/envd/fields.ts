import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { ConnectError } from './errors.ts';

/**
 * Readers for fields of protobuf messages in JSON. Null counts as absent, and an absent field has its
 * default. All fail with `invalid_argument`.
 */

const MAX_UINT32 = 0xffff_ffff;
const BASE64 = /^[A-Za-z0-9+/_-]*={0,2}$/;

export function isPresent(message: JsonObject, name: string): boolean {
  return Object.hasOwn(message, name) && message[name] !== null;
}

function fieldOf(message: JsonObject, name: string): unknown {
  return isPresent(message, name) ? message[name] : undefined;
}

export function textOf(message: JsonObject, name: string): string {
  const value = fieldOf(message, name) ?? '';
  if (typeof value !== 'string') throw wrong(name, 'a string');
  return value;
}

export function flagOf(message: JsonObject, name: string, fallback: boolean): boolean {
  const value = fieldOf(message, name) ?? fallback;
  if (typeof value !== 'boolean') throw wrong(name, 'a boolean');
  return value;
}

/** Reads an unsigned integer of 32 bits, which JSON may have as a number or as a string. */
export function numberOf(message: JsonObject, name: string): number {
  const value = fieldOf(message, name) ?? 0;
  const number = typeof value === 'string' && /^\d{1,10}$/.test(value) ? Number(value) : value;
  if (typeof number !== 'number' || !Number.isInteger(number) || number < 0 || number > MAX_UINT32) {
    throw wrong(name, 'an unsigned integer');
  }
  return number;
}

/** Reads bytes in base64, with or without padding and in either alphabet. */
export function bytesOf(message: JsonObject, name: string): Buffer {
  const value = textOf(message, name);
  if (!BASE64.test(value)) throw wrong(name, 'bytes in base64');
  return Buffer.from(value, 'base64');
}

export function messageOf(message: JsonObject, name: string): JsonObject {
  const value = fieldOf(message, name) ?? {};
  if (!isJsonObject(value)) throw wrong(name, 'an object');
  return value;
}

export function textsOf(message: JsonObject, name: string): readonly string[] {
  const value = fieldOf(message, name) ?? [];
  if (!Array.isArray(value) || value.some(each => typeof each !== 'string')) throw wrong(name, 'an array of strings');
  return value;
}

export function textMapOf(message: JsonObject, name: string): Readonly<Record<string, string>> {
  const value = messageOf(message, name);
  if (Object.values(value).some(each => typeof each !== 'string')) throw wrong(name, 'a map of strings');
  return value as Readonly<Record<string, string>>;
}

function wrong(name: string, expected: string): ConnectError {
  return new ConnectError('invalid_argument', `${name} must be ${expected}`);
}
