module function.local

go 1.24
