"""Kinds of studies: what varies, what is measured, how it is shown. A study is a kind with parameters."""
